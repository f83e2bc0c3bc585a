"""`make bench NAME=serve`: what is asked of a server over HTTP, and commands.

Ours: an app that runs (Spark, stores, server), its view in SQLite. Peer of the point reads: the same rows in
PostgreSQL, served by FastAPI and psycopg. Peer of the commands: the library `eventsourcing` on SQLite. The client is
the same for both sides, in a process of its own; each side is measured alone, warm. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from for_pipeline.children import Child, alone, say
from for_serve.commands import measure
from for_serve.live import NDJSON, followers, freshness
from for_serve.load import get, load, post
from for_serve.ours import VIEW, served
from for_serve.peer import serve_peer
from for_serve.rows import row

CONNECTIONS = 16
BATCH = 1000


def point_reads(port: int, path: str, count: int, seconds: float) -> dict[str, Any]:
    chance = random.Random(5)
    return load(port, lambda _: get(path.format(chance.randrange(count))), connections=CONNECTIONS, seconds=seconds)


def appends(port: int, records: int, seconds: float) -> dict[str, Any]:
    """One record a request, or many as NDJSON; `clicks` is a topic that no view reads."""
    kind = "application/json" if records == 1 else NDJSON
    body = "\n".join(json.dumps(row(number)) for number in range(records)).encode()
    ask = post("/topics/clicks/records", body, kind)
    return load(port, lambda _: ask, connections=CONNECTIONS, seconds=seconds)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=100_000, help="of the view")
    options.add_argument("--seconds", type=float, default=10, help="how long each rate is measured")
    options.add_argument("--fresh-s", type=float, default=40, help="how long freshness is measured")
    options.add_argument("--followers", type=int, default=500)
    given = options.parse_args()
    detail: dict[str, Any] = {"rows": given.rows, "connections": CONNECTIONS}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        with served(Path(folder), given.rows) as port:
            reads = alone(point_reads, port, f"/views/{VIEW}?key={{}}", given.rows, given.seconds)
            say(f"ours, point reads: {reads}")
            one = alone(appends, port, 1, given.seconds)
            many = alone(appends, port, BATCH, given.seconds)
            detail["appends"] = {"one by one": one, "ndjson records/s": many["per_s"] * BATCH, "ndjson": many}
            say(f"ours, appends: {detail['appends']}")
            detail["freshness"] = alone(_fresh, port, given.fresh_s)
            say(f"ours, freshness at 1,000 records/s: {detail['freshness']}")
            detail["followers"] = alone(_followed, port, given.followers)
            say(f"ours, followers: {detail['followers']}")
        peer = Child(serve_peer, given.rows)
        theirs = alone(point_reads, peer.hear(120), "/items/{}", given.rows, given.seconds)
        peer.tell("stop")
        peer.end()
        say(f"FastAPI and psycopg, point reads: {theirs}")
        detail["point_reads"] = {"ours": reads, "peer": theirs}
        detail["commands"] = alone(measure)
        say(f"commands: {detail['commands']}")
    ratio = round(reads["per_s"] / theirs["per_s"], 2)
    told = {"bench": "serve", "unit": "point reads/s", "ours": reads["per_s"], "peer": theirs["per_s"]}
    print(json.dumps({**told, "peer_name": "FastAPI + psycopg", "ratio": ratio, "detail": detail}))


def _fresh(port: int, seconds: float) -> dict[str, float]:
    return freshness(port, rate=1000, seconds=seconds)


def _followed(port: int, count: int) -> dict[str, Any]:
    return followers(port, count=count, changes=8)


if __name__ == "__main__":
    main()

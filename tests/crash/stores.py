"""Processes that apply to a store, append after append, until they are killed.

`python -m tests.crash.stores` reads lines `KIND URL`; for each it forks one (so that nobody waits for imports again),
which says `pid N`, then the number of each append that it has applied; when it is dead, that is said, too.
Append N makes every row say N, and takes away what was there before.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa

from headwater.records import WEIGHT
from headwater.serve.store import Served, Target
from headwater.serve.stores.destinations import destination
from headwater.serve.stores.sqlite import SqliteStore
from headwater.testing.stores_contract import FEW, mark

PAGES = [f"/{n}" for n in range(3000)]
"""Each append replaces all their rows, so that an apply takes long enough to be killed in the middle."""


def served(folder: Path) -> Served:
    return Served("v", "v@1", FEW, ("page",), folder)


def opened(kind: str, where: str) -> Target:
    if kind == "sqlite":
        return SqliteStore(Path(where) / "v.db", FEW, ("page",))
    return destination(where).open(served(Path("unused")))


def applied(store: Target, number: int) -> None:
    def rows(n: int, weight: int) -> pa.Table:
        return pa.table({"page": PAGES, "n": [n] * len(PAGES), WEIGHT: [weight] * len(PAGES)})

    changes = [rows(number, 1), rows(number - 1, -1)] if number > 1 else [rows(number, 1)]
    store.apply(pa.concat_tables(changes), mark(number), after=store.mark())


def work(kind: str, where: str) -> None:
    store = opened(kind, where)
    number = store.mark().number
    while True:
        number += 1
        applied(store, number)
        say(str(number))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            say(f"pid {os.getpid()}")
            work(*line.split())
        os.waitpid(pid, 0)
        say("dead")


if __name__ == "__main__":
    main()

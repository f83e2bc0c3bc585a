"""`make bench NAME=capture`: changes and rows of a real PostgreSQL into topics, against what else reads them.

1. Streaming a backlog of mixed changes: ours, durable in a topic, against `pg_recvlogical` into nothing, which is the
   server's own ceiling, and against the Debezium engine.
2. A snapshot: ours, durable in a topic, against `COPY` into nothing and against Debezium's.
3. Latency from commit to readable in the topic, at 1,000 changes a second; of Debezium, to its consumer.
4. Memory while one transaction of a million rows is captured.

Each side alone, one after the other, on the same server and tables, in processes of their own, warm. The median of the
rounds counts. Prints one JSON object last; its ratio is streaming against Debezium or, without it, `pg_recvlogical`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headwater as hw
from for_capture import ours
from for_capture.debezium import Debezium, find_debezium
from for_capture.source import ROW, Sizes, Source, copy_out, recvlogical
from headwater.log.position import AppendNumber
from headwater.testing.postgres import PostgresServer
from log_workload import Child

WARM = "live"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def streaming(source: Source, folder: Path, sizes: Sizes, rounds: int, debezium: Debezium | None) -> dict[str, Any]:
    """All slots stand before the same backlog, which everybody reads once a round."""
    for number in range(rounds):
        source.slot(f"recv_{number}")
        begin_capture(source, f"{folder}/stream-{number}", f"stream_{number}", "changes")
        if debezium is not None:
            debezium.begin(f"dbz_{number}", folder / f"dbz-{number}", "changes")
    changes = source.backlog(sizes)
    end = source.ask("SELECT pg_current_wal_lsn()::text")
    say(f"a backlog of {changes} changes")
    found: dict[str, list[float]] = {"ours": [], "pg_recvlogical": [], "debezium": []}
    for number in range(rounds):
        took, rows, _ = measured(source, f"file:{folder}/stream-{number}", f"stream_{number}", "changes")
        assert rows == changes, f"{rows} records of {changes} changes"
        found["ours"].append(changes / took)
        found["pg_recvlogical"].append(changes / recvlogical(source, f"recv_{number}", end))
        if debezium is not None:
            found["debezium"].append(changes / debezium.stream(f"dbz_{number}", folder / f"dbz-{number}", changes))
        say(f"streaming, changes/s: {told(found)}")
    source.drop_slots()
    return middle(found)


def begin_capture(source: Source, log: str, name: str, table: str) -> None:
    """Have the capture's slot and its first, empty snapshot made."""
    child = Child(ours.running, source.url, f"file:{log}", name, table).ready()
    child.tell("end")
    child.last_word()


def measured(source: Source, log: str, name: str, table: str) -> tuple[float, int, float]:
    child = Child(ours.timed, source.url, log, name, table, WARM).ready()
    child.tell("go")
    took, rows, peak = child.last_word()
    return took, rows, peak


def snapshots(source: Source, folder: Path, sizes: Sizes, rounds: int, debezium: Debezium | None) -> dict[str, Any]:
    found: dict[str, list[float]] = {"ours": [], "copy": [], "debezium": []}
    copy_out(source, "rows")
    for number in range(rounds):
        took, rows, _ = measured(source, f"file:{folder}/snapshot-{number}", f"snapshot_{number}", "rows")
        assert rows == sizes.rows
        found["ours"].append(rows / took)
        found["copy"].append(rows / copy_out(source, "rows"))
        if debezium is not None and number == 0:
            found["debezium"].append(rows / debezium.snapshot("dbz_rows", folder / "dbz-rows", "rows", rows))
        say(f"snapshot, rows/s: {told(found)}")
    source.drop_slots()
    return middle(found)


def latency(source: Source, folder: Path, sizes: Sizes, debezium: Debezium | None) -> dict[str, Any]:
    """Ours: until a follower of the topic has it, durable. Debezium: until its consumer has it, which keeps nothing."""
    found = {"ours": _ours_latency(source, folder, sizes)}
    source.drop_slots()
    say(f"latency: {found}")
    if debezium is not None:
        source.run("DELETE FROM live WHERE id >= 0")
        found["debezium"] = _debezium_latency(source, sizes, debezium, folder)
        source.drop_slots()
        say(f"latency: {found}")
    return found


def _ours_latency(source: Source, folder: Path, sizes: Sizes) -> dict[str, float]:
    log_url = f"file:{folder}/live"
    child = Child(ours.running, source.url, log_url, "live", "live").ready()
    source.run(f"INSERT INTO live SELECT {ROW} FROM generate_series(-100, -1) g")
    log = hw.open(log_url)
    topic = hw.Topic(log, log.topic("live"))
    while topic.read().num_rows < 100:
        time.sleep(0.05)
    position, number = topic.end(), AppendNumber(0)

    def come() -> list[int]:
        nonlocal position, number
        number = log.wait(number, 0.2)
        before, position = position, topic.end()
        ids: list[int] = topic.read(before, position)["id"].to_pylist()
        return ids

    figures = _latency(source, sizes, come)
    child.tell("end")
    child.last_word()
    log.close()
    return figures


def _debezium_latency(source: Source, sizes: Sizes, debezium: Debezium, folder: Path) -> dict[str, float]:
    debezium.begin("dbz_live", folder, "live")
    with debezium.telling("dbz_live", "live") as engine:
        source.run("UPDATE live SET id = id WHERE id < 0")
        while len(engine.messages) < 100 and engine.ended is None:
            time.sleep(0.05)
        place = len(engine.messages)

        def come() -> list[int]:
            nonlocal place
            assert engine.ended is None, engine.ended
            told = engine.messages[place:]
            place += len(told)
            if not told:
                time.sleep(0.0005)
            return [json.loads(key)["id"] for key, _ in told if key is not None]

        return _latency(source, sizes, come)


def _latency(source: Source, sizes: Sizes, come: Callable[[], list[int]]) -> dict[str, float]:
    """A transaction of ten changes every hundredth of a second; `come` gives the ids that are there by now."""
    committed: dict[int, float] = {}
    over = threading.Event()

    def write() -> None:
        begun, number = time.perf_counter(), 0
        while (now := time.perf_counter()) - begun < sizes.latency_s:
            if now - begun >= number / 1000:
                last = number + 9
                source.run(f"INSERT INTO live SELECT {ROW} FROM generate_series({number}, {last}) g")
                committed.update(dict.fromkeys(range(number, last + 1), time.perf_counter()))
                number = last + 1
            else:
                time.sleep(0.0002)
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[float] = []
    deadline = time.perf_counter() + sizes.latency_s + 20
    while (not over.is_set() or len(seen) < len(committed)) and time.perf_counter() < deadline:
        ids = come()
        now = time.perf_counter()
        seen += [max(0.0, now - committed.get(each, now)) * 1000 for each in ids if each >= 0]
    writer.join()
    seen.sort()
    figures = {
        "p50_ms": seen[len(seen) // 2],
        "p99_ms": seen[int(len(seen) * 0.99)],
        "per_s": len(seen) / sizes.latency_s,
    }
    return {name: round(value, 1) for name, value in figures.items()}


def memory(source: Source, folder: Path, sizes: Sizes) -> dict[str, float]:
    child = Child(ours.running, source.url, f"file:{folder}/large", "large", "large").ready()
    source.run(f"INSERT INTO large SELECT {ROW} FROM generate_series(1, {sizes.transaction}) g")
    child.tell("end")
    figures: dict[str, float] = child.last_word()
    assert figures["rows"] == sizes.transaction
    source.drop_slots()
    say(f"memory: {figures}")
    return figures


def middle(found: dict[str, list[float]]) -> dict[str, Any]:
    rates = {name: round(statistics.median(each)) for name, each in found.items() if each}
    return {
        **rates,
        **{f"ratio_to_{name}": round(rates["ours"] / rate, 2) for name, rate in rates.items() if name != "ours"},
    }


def told(found: dict[str, list[float]]) -> str:
    return ", ".join(f"{name} {each[-1]:,.0f}" for name, each in found.items() if each)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--changes", type=int, default=1_000_000, help="of the backlog")
    options.add_argument("--rows", type=int, default=2_000_000, help="of the snapshot")
    options.add_argument("--rounds", type=int, default=3, help="how often; the median counts")
    options.add_argument("--latency-s", type=float, default=10.0, help="how long latency is looked at")
    options.add_argument("--transaction", type=int, default=1_000_000, help="rows of the large transaction")
    options.add_argument("--no-debezium", action="store_true", help="without the Debezium engine")
    given = options.parse_args()
    sizes = Sizes(given.changes, given.rows, given.latency_s, given.transaction)
    with tempfile.TemporaryDirectory(dir=".") as scratch, PostgresServer() as server:
        folder, source = Path(scratch).absolute(), Source(server)
        source.make(sizes)
        debezium = None if given.no_debezium else find_debezium(server, folder, say)
        detail = {
            "streaming_changes_per_s": streaming(source, folder, sizes, given.rounds, debezium),
            "snapshot_rows_per_s": snapshots(source, folder, sizes, given.rounds, debezium),
            "latency_at_1000_per_s": latency(source, folder, sizes, debezium),
            "memory_of_a_large_transaction": memory(source, folder, sizes),
            "cores": os.cpu_count(),
        }
        source.connection.close()
    streamed = detail["streaming_changes_per_s"]
    peer = "debezium" if "debezium" in streamed else "pg_recvlogical"
    print(
        json.dumps(
            {
                "bench": "capture",
                "unit": "changes/s",
                "ours": streamed["ours"],
                "peer": streamed[peer],
                "peer_name": peer,
                "ratio": streamed[f"ratio_to_{peer}"],
                "detail": detail,
            }
        )
    )


if __name__ == "__main__":
    main()

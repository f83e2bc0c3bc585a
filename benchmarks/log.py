"""`make bench NAME=log`: our embedded log against a real Kafka broker, on the same typed records, in the same run.

Ours: the `file:` log, Arrow tables in, memory-mapped Arrow batches out. Every append is on disk when it returns.
Peer: a Kafka broker on loopback and confluent-kafka, records as JSON, as a user of Kafka in Python writes it: acks=all,
large lz4 batches, `produce_batch`, a consumer that prefetches. Kafka does not fsync; only in the comparison of
one-record appends is its topic made to (`flush.messages=1`), because there durability is what is compared.

What is compared is typed records: the peer's time includes JSON, because ours includes typing, hashing and checksums.
The peer without JSON stands beside it, and so does ours from and to Python dicts, which is far slower than Arrow.
A read of ours counts with the checksums of the chunks verified; a second one, without, stands beside it.

Each side is measured alone (no broker runs during ours), warm, and must read what was appended.
Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater.log import Position, Topic, TopicSpec
from headwater.log.position import AppendNumber
from headwater.log.protocol import Snapshot
from headwater.records import schema_of
from kafka_peer import measure_kafka
from log_workload import (
    COLUMNS,
    PARTITIONS,
    PROCESSES,
    STAGE_S,
    THREADS,
    Child,
    Deadline,
    Rates,
    Records,
    Row,
    Sizes,
    Span,
    disk_bytes,
    follow,
    say,
    singles_per_s,
    tail_latency,
    told,
    write_singles,
)


def make_ours(log: hw.Log, name: str) -> Topic:
    spec = TopicSpec(name, schema_of(COLUMNS), key=("user_id",), time="at", partitions=PARTITIONS)
    return Topic(log, log.create(spec))


def open_clicks(url: str) -> tuple[hw.Log, Topic]:
    log = hw.open(url)
    return log, make_ours(log, "clicks")


def append_all(topic: Topic, records: Iterable[pa.Table]) -> None:
    deadline = Deadline(f"appending to {topic.name}")
    for block in records:
        topic.append(block)
        deadline.left()


def read_all(log: hw.Log, topic: str) -> tuple[int, int]:
    """How many rows, and the sum of their users; the prices are summed to have their pages read as well."""
    deadline = Deadline(f"reading {topic}")
    end = log.snapshot([topic]).position
    rows = users = 0
    for partition in range(PARTITIONS):
        for batch in log.scan(topic, partition, 0, end.offset(topic, partition)):
            rows += batch.num_rows
            users += pc.sum(batch["user_id"]).as_py()
            pc.sum(batch["price"])
            deadline.left()
    return rows, users


def measure_ours(folder: Path, records: Records, sizes: Sizes) -> dict[str, Any]:
    result = ours_bulk(folder / "bulk", records, sizes)
    say(f"ours, bulk: {told(result)}")
    result["singles"] = ours_singles(f"file:{folder / 'singles'}", records, sizes)
    say(f"ours, one-record appends/s: {told(result['singles'])}")
    result["tail"] = ours_tail(f"file:{folder / 'tail'}", records, sizes)
    say(f"ours, tail: {result['tail']}")
    result["memory"] = ours_memory(f"file:{folder / 'large'}", records, sizes)
    say(f"ours, memory: {result['memory']}")
    return result


def ours_bulk(folder: Path, records: Records, sizes: Sizes) -> dict[str, Any]:
    log = hw.open(f"file:{folder}")
    warm = make_ours(log, "warm")
    append_all(warm, records.blocks)
    read_all(log, warm.name)
    rates = Rates(records.rows)
    for number in range(sizes.rounds):
        topic = make_ours(log, f"clicks_{number}")
        rates.time("append", append_all, topic, records)
        for what in ("read", "read_again"):
            got = rates.time(what, read_all, log, topic.name)
            assert got == (records.rows, records.sum), "ours must read what was appended"
    rows = records.rows * sizes.rounds + sizes.block * len(records.blocks)
    disk = disk_bytes([folder]) / rows
    dicts = records.some(sizes.block)
    by_dicts = Rates(len(dicts))
    for number in range(sizes.rounds):
        topic = make_ours(log, f"dicts_{number}")
        by_dicts.time("append_dicts", topic.append, dicts)
        assert by_dicts.time("read_dicts", read_dicts, log, topic.name) == len(dicts)
    log.close()
    return {**rates.medians(), **by_dicts.medians(), "disk": disk}


def read_dicts(log: hw.Log, topic: str) -> int:
    end = log.snapshot([topic]).position
    ends = {partition: end.offset(topic, partition) for partition in range(PARTITIONS)}
    return sum(len(batch.to_pylist()) for partition in ends for batch in log.scan(topic, partition, 0, ends[partition]))


def ours_singles(url: str, records: Records, sizes: Sizes) -> dict[str, float]:
    log, topic = open_clicks(url)
    rows = records.some(1000)

    def write(count: int) -> Span:
        return write_singles(lambda row: topic.append([row]), rows, count)

    write(sizes.singles // 10)
    result = {"1 thread": singles_per_s([write(sizes.singles)])}
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(write, [sizes.singles // 10] * THREADS))
        result[f"{THREADS} threads"] = singles_per_s(pool.map(write, [sizes.singles] * THREADS))
    writers = [Child(ours_single_writer, url, rows, sizes.singles) for _ in range(PROCESSES)]
    for writer in writers:
        writer.ready()
    for writer in writers:
        writer.tell("go")
    result[f"{PROCESSES} processes"] = singles_per_s([writer.last_word() for writer in writers])
    log.close()
    return result


def ours_single_writer(url: str, rows: list[Row], count: int, pipe: Connection) -> None:
    log, topic = open_clicks(url)
    write_singles(lambda row: topic.append([row]), rows, 20)
    pipe.send("ready")
    assert pipe.poll(STAGE_S), "no word to go"
    pipe.recv()
    pipe.send(write_singles(lambda row: topic.append([row]), rows, count))
    log.close()


def ours_tail(url: str, records: Records, sizes: Sizes) -> dict[str, float]:
    log, topic = open_clicks(url)
    rows = records.some(1000)
    took = tail_latency(
        lambda row: topic.append([row]), rows, sizes.tail, lambda: Child(ours_follower, url, sizes.tail)
    )
    log.close()
    return took


def ours_follower(url: str, count: int, pipe: Connection) -> None:
    follow(ours_arrivals(url), count, pipe)


def ours_arrivals(url: str) -> Iterator[list[tuple[int, float]]]:
    log, topic = open_clicks(url)
    seen = Snapshot(AppendNumber(0), Position())
    while True:
        log.wait(seen.number, 1.0)
        newest = log.snapshot([topic.name])
        arrived: list[tuple[int, float]] = []
        for partition in range(PARTITIONS):
            start, end = (point.position.offset(topic.name, partition) for point in (seen, newest))
            for batch in log.scan(topic.name, partition, start, end) if start < end else ():
                now = time.time()
                sent = batch["at"].cast(pa.int64()).to_pylist()
                arrived += [(user, now - at / 1e6) for user, at in zip(batch["user_id"].to_pylist(), sent, strict=True)]
        yield arrived
        seen = newest


def ours_memory(url: str, records: Records, sizes: Sizes) -> dict[str, float]:
    log, topic = open_clicks(url)
    block_bytes = sum(block.nbytes for block in records.blocks) / len(records.blocks)
    blocks = max(1, round(sizes.memory_bytes / block_bytes))
    append_all(topic, itertools.islice(itertools.cycle(records.blocks), blocks))
    log.close()
    result: dict[str, float] = Child(memory_of_a_reader, url).last_word()
    assert result["rows"] == blocks * sizes.block, "the reader must see all rows"
    return {"topic_gb": round(blocks * block_bytes / 1e9, 3), **result}


def memory_of_a_reader(url: str, pipe: Connection) -> None:
    before = peak = anonymous_mb()
    over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.005):
            peak = max(peak, anonymous_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        log = hw.open(url)
        rows, _ = read_all(log, "clicks")
        peak = max(peak, anonymous_mb())
        log.close()
    finally:
        over.set()
        watcher.join()
    pipe.send({"rows": rows, "peak_anonymous_mb": round(peak, 1), "before_reading_mb": round(before, 1)})


def anonymous_mb() -> float:
    """Memory that is this process's alone; mapped pages of files are the kernel's to take back."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this kernel does not tell RssAnon")


def whole(figures: dict[str, float]) -> dict[str, int]:
    return {name: round(value) for name, value in figures.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=2_000_000, help="rows of a bulk append and of a read")
    options.add_argument("--rounds", type=int, default=3, help="how often; the median counts")
    options.add_argument("--singles", type=int, default=5_000, help="one-record appends a writer")
    options.add_argument("--tail", type=int, default=1_000, help="records that are followed")
    options.add_argument("--memory-gb", type=float, default=1.0, help="size of the topic whose reader is weighed")
    options.add_argument("--scale", type=float, default=1.0, help="shrinks all of the above but the rounds")
    given = options.parse_args()
    sizes = Sizes(
        rows=max(1_000, round(given.rows * given.scale)),
        rounds=given.rounds,
        singles=max(100, round(given.singles * given.scale)),
        tail=max(50, round(given.tail * given.scale)),
        memory_bytes=round(given.memory_gb * given.scale * 1e9),
    )
    records = Records(sizes)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        ours = measure_ours(Path(folder).absolute(), records, sizes)
        version, kafka = measure_kafka(Path(folder).absolute(), records, sizes)
    detail = {
        "bulk_append_rows_per_s": {
            "ours": round(ours["append"]),
            "ours_from_dicts": round(ours["append_dicts"]),
            "kafka": round(kafka["append"]),
            "kafka_encoded_before": round(kafka["append_encoded"]),
            "ratio": round(ours["append"] / kafka["append"], 2),
        },
        "read_rows_per_s": {
            "ours": round(ours["read"]),
            "ours_again": round(ours["read_again"]),
            "ours_to_dicts": round(ours["read_dicts"]),
            "kafka": round(kafka["read"]),
            "kafka_undecoded": round(kafka["read_undecoded"]),
            "ratio": round(ours["read"] / kafka["read"], 2),
        },
        "durable_one_record_appends_per_s": {"ours": whole(ours["singles"]), "kafka": whole(kafka["singles"])},
        "disk_bytes_per_row": {"ours": round(ours["disk"], 1), "kafka": round(kafka["disk"], 1)},
        "tail_latency": {"ours": ours["tail"], "kafka": kafka["tail"]},
        "reader_memory": ours["memory"],
        "rows": records.rows,
        "rounds": sizes.rounds,
        "cores": os.cpu_count(),
    }
    print(
        json.dumps(
            {
                "bench": "log",
                "unit": "rows/s",
                "ours": round(ours["append"]),
                "peer": round(kafka["append"]),
                "peer_name": f"kafka {version}",
                "ratio": round(ours["append"] / kafka["append"], 2),
                "detail": detail,
            }
        )
    )


if __name__ == "__main__":
    main()

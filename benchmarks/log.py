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
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headwater as hw
from headwater.log import Position, Topic, TopicSpec
from headwater.log.position import AppendNumber
from headwater.log.protocol import Snapshot
from headwater.records import schema_of
from headwater.testing.kafka import KafkaBroker

COLUMNS = {"user_id": "int64", "page": "string", "at": "timestamp", "price": "float64", "country": "string"}
PARTITIONS = 4
BLOCK = 100_000
THREADS, PROCESSES = 8, 4
TAIL_PER_S = 200
STAGE_S = 600.0
"""No stage takes longer: what is not through by then has failed."""
SINGLES_S = 20.0
"""One-record appends end after this time, however many they are by then."""
SPAWN = multiprocessing.get_context("spawn")

Row = dict[str, Any]
Answer = TypeVar("Answer")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Sizes:
    rows: int
    rounds: int
    singles: int
    tail: int
    memory_bytes: int

    @property
    def block(self) -> int:
        return min(BLOCK, self.rows)


class Deadline:
    def __init__(self, what: str, seconds: float = STAGE_S) -> None:
        self._what, self._seconds = what, seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{self._what}: not through after {self._seconds:g} s")
        return left


class Records:
    """A few blocks of clicks, used over and over: further apart than any compression looks back."""

    def __init__(self, sizes: Sizes) -> None:
        self._chance = np.random.default_rng(11)
        self.blocks = [self._block(sizes.block) for _ in range(4)]
        self._times = max(1, round(sizes.rows / sizes.block))
        self.rows = self._times * sizes.block
        self.sum = sum(pc.sum(block["user_id"]).as_py() for block in self)

    def __iter__(self) -> Iterator[pa.Table]:
        return itertools.islice(itertools.cycle(self.blocks), self._times)

    def again(self, blocks: list[list[Row]]) -> Iterator[Row]:
        """The same rows in the same order, from the blocks in another form."""
        return itertools.chain.from_iterable(itertools.islice(itertools.cycle(blocks), self._times))

    def some(self, count: int) -> list[Row]:
        rows: list[Row] = self.blocks[0].slice(0, count).to_pylist()
        return rows

    def _block(self, rows: int) -> pa.Table:
        chance = self._chance
        at = pa.array(np.arange(rows) * 1000 + 1_767_225_600_000_000).cast(pa.timestamp("us", "UTC"))
        return pa.table(
            {
                "user_id": chance.integers(0, 100_000, rows),
                "page": np.char.add("/product/", chance.integers(0, 20_000, rows).astype(str)),
                "at": at,
                "price": chance.integers(100, 100_000, rows) / 100,
                "country": np.array([f"c{n:02}" for n in range(60)])[chance.integers(0, 60, rows)],
            }
        )


# --- measuring ----------------------------------------------------------------------------------------


class Rates:
    """Rows a second by what was done, of several rounds; the median counts."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._found: dict[str, list[float]] = {}

    def time(self, what: str, act: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        start = time.monotonic()
        answer = act(*arguments, **options)
        self._found.setdefault(what, []).append(self._rows / (time.monotonic() - start))
        return answer

    def medians(self) -> dict[str, Any]:
        return {what: statistics.median(rates) for what, rates in self._found.items()}


@dataclass(frozen=True)
class Span:
    """How many appends one writer made, from when to when (by the clock that processes share)."""

    count: int
    start: float
    end: float


def write_singles(append: Callable[[Row], object], rows: list[Row], count: int) -> Span:
    start, done = time.time(), 0
    for row in itertools.islice(itertools.cycle(rows), count):
        append(row)
        done += 1
        if time.time() - start > SINGLES_S:
            break
    return Span(done, start, time.time())


def singles_per_s(spans: Iterable[Span]) -> float:
    all_of_them = list(spans)
    took = max(span.end for span in all_of_them) - min(span.start for span in all_of_them)
    return sum(span.count for span in all_of_them) / took


def tail_latency(
    append: Callable[[Row], object], rows: list[Row], count: int, follower: Callable[[], Child]
) -> dict[str, float]:
    """From before an append to a follower in another process that has the record in hand, at an even pace.

    Records carry the time at which they were sent. Those with users below zero warm up: the follower is ready when the
    first has come, the others get the rest of both processes going.
    """

    def send(user: int) -> None:
        append({**rows[user % len(rows)], "user_id": user, "at": datetime.now(UTC)})

    warm_up = max(50, count // 10)
    send(-1)
    following = follower().ready()
    start = time.monotonic()
    for sent, user in enumerate(range(-warm_up, count)):
        time.sleep(max(0.0, start + sent / TAIL_PER_S - time.monotonic()))
        send(user)
    p50, p99 = np.percentile(np.array(following.last_word()) * 1000, [50, 99])
    return {"p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2)}


def follow(arrivals: Iterator[list[tuple[int, float]]], count: int, pipe: Connection) -> None:
    """The follower's side: (user, seconds on the way) of the records as they come, until all have come."""
    deadline, ready = Deadline("following"), False
    took: list[float] = []
    while len(took) < count:
        arrived = next(arrivals)
        if arrived and not ready:
            pipe.send("ready")
            ready = True
        took += [seconds for user, seconds in arrived if user >= 0]
        deadline.left()
    pipe.send(took)


def disk_bytes(folders: Iterable[Path]) -> int:
    """Bytes taken, not lengths: Kafka's index files are long and sparse."""
    return sum(file.stat().st_blocks * 512 for folder in folders for file in folder.rglob("*") if file.is_file())


class Child:
    """A function in a process of its own. It gets its end of a pipe last, and says "ready" when it is warm."""

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=work, args=(*arguments, theirs), daemon=True)
        self._process.start()
        theirs.close()  # so that a child that dies is heard at once: EOFError
        self._name = work.__name__

    def ready(self) -> Child:
        assert self.hear() == "ready"
        return self

    def tell(self, word: str) -> None:
        self._pipe.send(word)

    def hear(self) -> Any:
        if not self._pipe.poll(STAGE_S):
            self._process.kill()
            raise TimeoutError(f"{self._name}: nothing heard for {STAGE_S:g} s")
        return self._pipe.recv()

    def last_word(self) -> Any:
        word = self.hear()
        self._process.join(30)
        return word


# --- ours ---------------------------------------------------------------------------------------------


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


# --- the peer -----------------------------------------------------------------------------------------

to_json = json.JSONEncoder(separators=(",", ":"), default=datetime.isoformat).encode
QUEUE = 1_000_000


def to_message(row: Row) -> dict[str, Any]:
    return {"key": str(row["user_id"]).encode(), "value": to_json(row).encode()}


def from_message(value: bytes) -> Row:
    row: Row = json.loads(value)
    row["at"] = datetime.fromisoformat(row["at"])
    return row


def bulk_producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": QUEUE,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )


def single_producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True})


def send_single(producer: Producer, topic: str, row: Row) -> None:
    message = to_message(row)
    producer.produce(topic, message["value"], message["key"])
    if producer.flush(30) > 0:
        raise TimeoutError("Kafka did not acknowledge a record within 30 s")


def send_all(producer: Producer, topic: str, messages: Iterable[dict[str, Any]]) -> None:
    deadline = Deadline(f"producing to {topic}")
    supply = iter(messages)
    while batch := list(itertools.islice(supply, 10_000)):
        while producer.produce_batch(topic, batch) < len(batch):  # its queue is full; what did not fit is marked
            batch = [message for message in batch if message.pop("_error", None)]
            producer.poll(min(0.05, deadline.left()))
        deadline.left()
    if producer.flush(deadline.left()) > 0:
        raise TimeoutError(f"producing to {topic}: not all was acknowledged")


def consumer(bootstrap: str, **settings: Any) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, **settings})


def from_the_start(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]


def value_of(message: Message) -> bytes:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    value = message.value()
    assert isinstance(value, bytes)
    return value


def receive_all(reader: Consumer, topic: str, rows: int, *, decode: bool) -> tuple[int, int]:
    deadline = Deadline(f"consuming {topic}")
    reader.assign(from_the_start(topic))
    received = users = 0
    while received < rows:
        messages = reader.consume(1000, min(1.0, deadline.left()))
        for message in messages:
            value = value_of(message)
            if decode:
                users += from_message(value)["user_id"]
        received += len(messages)
    return received, users


def measure_kafka(folder: Path, records: Records, sizes: Sizes) -> tuple[str, dict[str, Any]]:
    with KafkaBroker(folder / "broker") as broker:
        say(f"kafka {broker.version} answers at {broker.bootstrap}")
        return broker.version, measure_broker(broker, records, sizes)


def make_topic(bootstrap: str, name: str, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)])[name].result(60)
    return name


def measure_broker(broker: KafkaBroker, records: Records, sizes: Sizes) -> dict[str, Any]:
    result = kafka_bulk(broker, records, sizes)
    say(f"kafka, bulk: {told(result)}")
    result["singles"] = kafka_singles(broker.bootstrap, records, sizes)
    say(f"kafka, one-record appends/s: {told(result['singles'])}")
    result["tail"] = kafka_tail(broker.bootstrap, records, sizes)
    say(f"kafka, tail: {result['tail']}")
    return result


def kafka_bulk(broker: KafkaBroker, records: Records, sizes: Sizes) -> dict[str, Any]:
    at = broker.bootstrap
    producer = bulk_producer(at)
    # A short wait at the end of a topic: the next one can only be fetched when that wait is over.
    prefetching = {"queued.min.messages": QUEUE, "queued.max.messages.kbytes": 1_048_576, "fetch.wait.max.ms": 10}
    reader = consumer(at, **prefetching)
    rows = [block.to_pylist() for block in records.blocks]
    encoded = [[to_message(row) for row in block] for block in rows]
    warm = make_topic(at, "warm")
    send_all(producer, warm, map(to_message, rows[0]))
    send_all(producer, warm, encoded[0])
    receive_all(reader, warm, 2 * sizes.block, decode=True)
    rates = Rates(records.rows)
    for number in range(sizes.rounds):
        typed, plain = make_topic(at, f"clicks_{number}"), make_topic(at, f"encoded_{number}")
        rates.time("append", send_all, producer, typed, map(to_message, records.again(rows)))
        rates.time("append_encoded", send_all, producer, plain, records.again(encoded))
        receive_all(
            reader, typed, 1, decode=False
        )  # finding the leaders of a new topic takes the client up to a second
        rates.time("read_undecoded", receive_all, reader, typed, records.rows, decode=False)
        got = rates.time("read", receive_all, reader, typed, records.rows, decode=True)
        assert got == (records.rows, records.sum), "Kafka must read what was appended"
    reader.close()
    disk = disk_bytes(broker.folder.glob("data/clicks_*")) / (records.rows * sizes.rounds)
    return {**rates.medians(), "disk": disk}


def kafka_singles(at: str, records: Records, sizes: Sizes) -> dict[str, float]:
    topic = make_topic(at, "durable", **{"flush.messages": "1"})
    rows = records.some(1000)

    def write(count: int) -> Span:
        producer = single_producer(at)
        send_single(producer, topic, rows[0])  # connected before the clock runs
        return write_singles(lambda row: send_single(producer, topic, row), rows, count)

    write(sizes.singles // 10)
    result = {"1 thread": singles_per_s([write(sizes.singles)])}
    with ThreadPoolExecutor(THREADS) as pool:
        result[f"{THREADS} threads"] = singles_per_s(pool.map(write, [sizes.singles] * THREADS))
    return result


def kafka_tail(at: str, records: Records, sizes: Sizes) -> dict[str, float]:
    topic = make_topic(at, "tail")
    producer = single_producer(at)
    rows = records.some(1000)
    return tail_latency(
        lambda row: send_single(producer, topic, row), rows, sizes.tail, lambda: Child(kafka_follower, at, sizes.tail)
    )


def kafka_follower(at: str, count: int, pipe: Connection) -> None:
    follow(kafka_arrivals(at, "tail"), count, pipe)


def kafka_arrivals(at: str, topic: str) -> Iterator[list[tuple[int, float]]]:
    reader = consumer(at)
    reader.assign(from_the_start(topic))
    while True:
        message = reader.poll(1.0)
        now = time.time()
        if message is None:
            yield []
            continue
        row = from_message(value_of(message))
        yield [(row["user_id"], now - row["at"].timestamp())]


# --- the answer ---------------------------------------------------------------------------------------


def told(figures: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:,.0f}" for name, value in figures.items())


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

"""The peer of `log.py`: a real Kafka broker and confluent-kafka, as a user of Kafka in Python writes it."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.testing.kafka import KafkaBroker
from log_workload import (
    PARTITIONS,
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

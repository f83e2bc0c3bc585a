"""The processes of a history: they append and poll until they are killed, and write down what they asked and were told.

Forks of one process that has imported this file (see `multiprocessing`'s forkserver), so that a start costs little.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd  # noqa: F401  (pyarrow imports it at its first array: once here, not in every fork)

from headwater.errors import Fenced
from headwater.log.embedded import EmbeddedLog
from headwater.testing.history import Client, History, Recorder, spec_of

TOPICS = ("orders", "payments")
PARTITIONS = [("orders", 0), ("orders", 1), ("payments", 0)]
LARGE = 70_000
"""A filler that makes a chunk a file."""


def prepare(folder: Path) -> None:
    log = EmbeddedLog(folder)
    log.create(spec_of("orders", 2))
    log.create(spec_of("payments", 1))
    log.close()


def values_of(name: str, number: int) -> dict[tuple[str, int], list[str]]:
    """What is appended under this name and number: the same whenever it is asked for. Mostly to several topics."""
    chance = random.Random(f"{name}/{number}")
    return {
        (topic, partition): [f"{name}/{number}/{topic}-{partition}/{n}" for n in range(chance.randint(1, 3))]
        for topic, partition in chance.sample(PARTITIONS, chance.randint(1, 3))
    }


def client_of(folder: str, histories: str, process: str) -> Client:
    return Client(EmbeddedLog(Path(folder)), Recorder(Path(histories) / process, process), TOPICS)


def write_plainly(folder: str, histories: str, process: str, line: str) -> None:
    """Appends without a producer; between staging and appending it polls; now and then it rolls up."""
    client, chance = client_of(folder, histories, process), random.Random(process)
    for number in range(100_000):
        filler = LARGE if chance.random() < 0.05 else 0
        before = client.poll if chance.random() < 0.1 else None
        client.append(values_of(process, number), filler=filler, before=before)
        if chance.random() < 0.02:
            assert isinstance(client.log, EmbeddedLog)
            client.log.upkeep.roll_up("orders", least_chunks=4)


def write_once(folder: str, histories: str, process: str, line: str) -> None:
    """Appends as the producer `line`, from where its predecessors were interrupted on; repeats some appends, as if no
    answer had come. Ends when a successor has replaced it."""
    client, chance = client_of(folder, histories, process), random.Random(process)
    try:
        producer = client.begin(line)
        for sequence in range(_last_sequence(Path(histories), line), 100_000):
            filler = LARGE if chance.random() < 0.05 else 0
            for _ in range(1 + (chance.random() < 0.2)):
                client.append(values_of(line, sequence), producer=producer, sequence=sequence, filler=filler)
    except Fenced:
        return


def _last_sequence(histories: Path, line: str) -> int:
    asked = History.read(*histories.glob(f"{line}.*")).appends
    return max((append.asked.sequence or 0 for append in asked), default=0)


def follow(folder: str, histories: str, process: str, stop: Any) -> None:
    client = client_of(folder, histories, process)
    newest = client.log.snapshot(TOPICS).number
    while not stop.is_set():
        client.poll()
        newest = client.log.wait(newest, 0.1)
    client.poll()

"""Processes that append until they are killed or stopped; started by tests with the spawn method."""

from __future__ import annotations

import os
from typing import Any

import headwater as hw
from headwater.errors import Fenced
from headwater.log import Topic
from headwater.log.embedded import EmbeddedLog
from headwater.testing.log_contract import CLICKS


def click(number: int) -> dict[str, Any]:
    return {"user_id": number, "page": f"/{number}"}


def append_numbers(folder: str, first: int, acknowledged: Any, upkeep: bool) -> None:
    """Appends first, first + 1, ...; tells each as soon as it is acknowledged. Large batches and upkeep in between."""
    log = EmbeddedLog(hw.open(f"file:{folder}").root)  # type: ignore[attr-defined]
    topic = Topic(log, log.create(CLICKS))
    producer = log.begin(f"writer-{first}")
    number = first
    for sequence in range(100_000):
        count = 2500 if sequence % 7 == 3 else 1
        topic.append([click(n) for n in range(number, number + count)], producer=producer, sequence=sequence)
        number += count
        acknowledged.value = number
        if upkeep and sequence % 11 == 5:
            log.upkeep.roll_up("clicks", least_chunks=2)
            log.upkeep.collect_garbage(grace_s=0.2)


def hold_the_transaction(folder: str, inside: Any, go_on: Any) -> None:
    log = EmbeddedLog(hw.open(f"file:{folder}").root)  # type: ignore[attr-defined]
    log.create(CLICKS)

    def work(catalog: Any) -> None:
        inside.value = os.getpid()
        go_on.wait()

    log.committer.run(work)


def append_when_told(folder: str, ready: Any, go_on: Any, outcome: Any) -> None:
    """Takes an epoch, waits outside of any transaction, then appends as if nothing had happened."""
    log = hw.open(f"file:{folder}")
    topic = Topic(log, log.create(CLICKS))
    producer = log.begin("zombie")
    topic.append([click(1)], producer=producer, sequence=0)
    ready.set()
    go_on.wait()
    try:
        topic.append([click(2)], producer=producer, sequence=1)
        outcome.value = 1
    except Fenced:
        outcome.value = 2

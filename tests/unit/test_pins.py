"""A pin that is given with an append moves on with it, in one transaction, and never without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.errors import Fenced, Full, ProgressBroken, TopicNotFound, VersionConflict
from headwater.log import Producer, Progress, Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.position import Position
from headwater.log.protocol import Pin
from headwater.records import schema_of

SCHEMA = schema_of({"k": "int64"})
INPUT = TopicSpec("input", SCHEMA, key=("k",), partitions=2, settings=Settings(retain_bytes=1))
OUTPUT = TopicSpec("output", SCHEMA, key=("k",), partitions=1, versioned=True)


@pytest.fixture
def producer(log: EmbeddedLog) -> Producer:
    log.create(INPUT)
    log.create(OUTPUT)
    return log.begin("view")


def at(offset: int) -> Position:
    return Position.of({"input": {0: offset, 1: offset}})


def pins(log: EmbeddedLog) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    with log.catalog.read() as catalog:
        for name, offset in catalog.execute('SELECT name, "offset" FROM pins ORDER BY name, topic, partition'):
            found.setdefault(str(name), []).append(int(offset))  # type: ignore[arg-type]
    return found


def append(log: EmbeddedLog, producer: Producer, sequence: int, start: int, end: int, **given: Any) -> Any:
    parts = log.stage_rows("output", [{"k": sequence}])
    pin = Pin("view", at(end), ("input",))
    return log.append(
        parts, producer=producer, sequence=sequence, progress=Progress(at(start), at(end)), pin=pin, **given
    )


def test_it_takes_the_place_of_the_one_before_and_leaves_those_of_others(log: EmbeddedLog, producer: Producer) -> None:
    log.pin("other", at(1), topics=["input"])
    log.pin("view", at(1), topics=["input", "output"])
    append(log, producer, 0, 0, 3)
    assert pins(log) == {"other": [1, 1], "view": [3, 3]}
    append(log, producer, 1, 3, 5)
    assert pins(log) == {"other": [1, 1], "view": [5, 5]}


def test_it_moves_with_a_repeated_append(log: EmbeddedLog, producer: Producer) -> None:
    append(log, producer, 0, 0, 3)
    log.pin("view", at(0), topics=["input"])
    assert append(log, producer, 0, 0, 3).repeated
    assert pins(log) == {"view": [3, 3]}


def test_it_moves_with_an_append_of_nobody(log: EmbeddedLog, producer: Producer) -> None:
    log.append(log.stage_rows("output", [{"k": 1}]), pin=Pin("reader", at(2), ("input",)))
    assert pins(log) == {"reader": [2, 2]}


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda log, producer: append(log, Producer("view", producer.epoch - 1), 1, 3, 5), Fenced),
        (lambda log, producer: append(log, producer, 0, 0, 5), ProgressBroken),
        (lambda log, producer: append(log, producer, 1, 2, 5), ProgressBroken),
        (lambda log, producer: append(log, producer, 1, 3, 5, expect={"output": {(7,): 9}}), VersionConflict),
    ],
)
def test_after_a_refused_append_it_is_as_it_was(
    log: EmbeddedLog,
    producer: Producer,
    refused: Callable[[EmbeddedLog, Producer], Any],
    error: type[Exception],
) -> None:
    append(log, producer, 0, 0, 3)
    newest = log.snapshot(["output"])
    with pytest.raises(error):
        refused(log, producer)
    assert pins(log) == {"view": [3, 3]}
    assert log.snapshot(["output"]) == newest


def test_after_an_append_that_found_no_room_it_is_as_it_was(log: EmbeddedLog, producer: Producer) -> None:
    append(log, producer, 0, 0, 3)
    log.alter("output", settings=Settings(most_rows=1, when_full="block"))
    with pytest.raises(Full):
        append(log, producer, 1, 3, 5, timeout_s=0.01)
    assert pins(log) == {"view": [3, 3]}


def test_one_of_a_topic_that_is_not_there_refuses_the_append(log: EmbeddedLog, producer: Producer) -> None:
    newest = log.snapshot(["output"])
    with pytest.raises(TopicNotFound):
        log.append(log.stage_rows("output", [{"k": 1}]), pin=Pin("view", at(3), ("nowhere",)))
    assert log.snapshot(["output"]) == newest


def test_retention_goes_as_far_as_the_append_has_moved_it(log: EmbeddedLog, producer: Producer) -> None:
    for _ in range(5):
        Topic(log, INPUT).append([{"k": 1}, {"k": 2}], partition=0)
    log.pin("view", at(0), topics=["input"])
    log.upkeep.retain("input")
    assert log.extents("input")[0].start == 0
    append(log, producer, 0, 0, 4)
    log.upkeep.retain("input")
    assert log.extents("input")[0].start == 4


def test_it_costs_no_second_sync(log: EmbeddedLog, producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[int] = []
    write = log.catalog.write
    monkeypatch.setattr(log.catalog, "write", lambda: [commits.append(1), write()][1])
    append(log, producer, 0, 0, 3)
    assert commits == [1]

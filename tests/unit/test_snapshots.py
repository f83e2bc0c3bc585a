"""A snapshot within its limits is where the log ends, whatever upkeep has left of it; and costs one statement."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.log import Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.read import ends_at
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Snapshot
from headwater.records import schema_of

SCHEMA = schema_of({"k": "int64", "v": "int64"})
STREAM = TopicSpec("stream", SCHEMA, key=("k",), partitions=3, settings=Settings(retain_bytes=1))
TABLE = TopicSpec("table", SCHEMA, key=("k",), kind="table", partitions=3)
RING = TopicSpec("ring", SCHEMA, partitions=2, settings=Settings(most_rows=3))
EMPTY = TopicSpec("empty", SCHEMA, partitions=2)
NAMES = ("stream", "table", "ring", "empty")
PLENTY = 10**9


@pytest.fixture
def topics(log: EmbeddedLog) -> dict[str, Topic]:
    made = {spec.name: Topic(log, log.create(spec)) for spec in (STREAM, TABLE, RING, EMPTY)}
    for number in range(12):
        made["stream"].append([{"k": number % 5, "v": number}])
        made["table"].append([{"k": number % 5, "v": number, "_weight": 1}])
        made["table"].append([{"k": number % 5, "v": number, "_weight": -1}])
        made["ring"].append([{"k": number, "v": number}])
    return made


def nothing(log: EmbeddedLog) -> None: ...


def everything(log: EmbeddedLog) -> None:
    for act in (retain, compact, roll_up, forget):
        act(log)


def retain(log: EmbeddedLog) -> None:
    log.upkeep.retain("stream")


def compact(log: EmbeddedLog) -> None:
    log.upkeep.compact("table")


def roll_up(log: EmbeddedLog) -> None:
    for name in NAMES:
        log.upkeep.roll_up(name, least_chunks=2)


def forget(log: EmbeddedLog) -> None:
    log.upkeep.forget("stream", keys=[{"k": number} for number in range(5)])


def searched(log: EmbeddedLog, number: int) -> Snapshot:
    """Partition by partition, from what is listed."""
    with log.catalog.read() as catalog:
        ends = {name: ends_at(catalog, log.known(name), number) for name in NAMES}
    return Snapshot(AppendNumber(number), Position.of(ends))


@pytest.mark.parametrize("upkeep", [nothing, retain, compact, roll_up, forget, everything])
def test_what_is_within_the_limit_ends_where_the_search_for_it_ends(
    log: EmbeddedLog, topics: dict[str, Topic], upkeep: Callable[[EmbeddedLog], None]
) -> None:
    upkeep(log)
    newest = log.snapshot(NAMES)
    assert newest == searched(log, newest.number)
    assert log.snapshot(NAMES, max_rows=PLENTY) == newest
    assert log.snapshot(NAMES, max_rows=newest.position.total) == newest
    assert log.snapshot(NAMES, max_rows=PLENTY, max_bytes=PLENTY) == newest
    less = log.snapshot(NAMES, max_rows=newest.position.total - 1)
    assert less.number < newest.number
    assert less == searched(log, less.number)
    topics["empty"].append([{"k": 1, "v": 1}])
    assert log.snapshot(NAMES, after=newest, max_rows=1) == log.snapshot(NAMES) == searched(log, newest.number + 1)


def test_what_is_within_the_limit_costs_one_statement(
    log: EmbeddedLog, topics: dict[str, Topic], executed: Callable[[], list[str]]
) -> None:
    log.snapshot(NAMES)
    executed()
    log.snapshot(NAMES, max_rows=PLENTY)
    assert len(executed()) == 1

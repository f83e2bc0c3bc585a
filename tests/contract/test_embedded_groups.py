"""The embedded log's groups keep the contract of all, also between processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.clock import system_clock
from headwater.errors import Compacted
from headwater.log import Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.groups import EmbeddedGroups
from headwater.log.groups import Consumer
from headwater.records import schema_of
from headwater.testing.groups_contract import NUMBERS, GroupsContract, ManualClock, fill, read


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(tmp_path / "log", clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def groups(log: EmbeddedLog) -> EmbeddedGroups:
    return EmbeddedGroups(log)


class TestEmbeddedGroups(GroupsContract):
    pass


def test_a_killed_process_leaves_its_partitions_to_the_others(tmp_path: Path, until: Callable[..., None]) -> None:
    folder = tmp_path / "log"
    ahead = ManualClock(0)
    log = EmbeddedLog(folder, clock=lambda: system_clock() + ahead())
    numbers = Topic(log, log.create(NUMBERS))
    groups = EmbeddedGroups(log)
    for partition in range(4):
        fill(numbers, partition, range(partition * 10, partition * 10 + 10))
    context = multiprocessing.get_context("spawn")
    polled = context.Value("i", 0)
    other = context.Process(target=_poll_until_killed, args=(str(folder), polled))
    other.start()
    try:
        until(lambda: polled.value > 0, what="the other member's first poll")
        seen: list[int] = []
        with Consumer(log, groups, group="g", topic="numbers", member="a", clock=log.clock) as consumer:
            assert consumer.partitions == (0, 1)
            other.kill()
            other.join()
            ahead.pass_s(60)  # of both sessions nothing is left

            def all_seen() -> bool:
                seen.extend(read(consumer.poll(0.05)))
                consumer.commit()
                return set(seen) == set(range(40))

            until(all_seen, what="the killed member's records")
            assert sum(row.lag for row in groups.lag("g", "numbers")) == 0
            assert len(groups.members("g", "numbers")) == 1
    finally:
        other.kill()
        other.join()


def _poll_until_killed(folder: str, polled: Any) -> None:
    log = EmbeddedLog(Path(folder))
    with Consumer(log, EmbeddedGroups(log), group="g", topic="numbers", member="b") as consumer:
        while True:  # it reads, and never comes to commit
            polled.value += len(read(consumer.poll(0.2)))


def test_removed_groups_leave_one_number_behind_however_many_there_were(
    log: EmbeddedLog, groups: EmbeddedGroups
) -> None:
    log.create(NUMBERS)
    for number in range(5):
        groups.join(f"g{number}", "numbers", "a")
        groups.leave(f"g{number}", "numbers", "a")
        groups.remove(f"g{number}", "numbers")
    with log.catalog.read() as catalog:
        assert catalog.execute("SELECT * FROM floors").fetchall() == [("generation", 10)]


def test_a_compacted_beginning_is_read_as_a_whole(log: EmbeddedLog, groups: EmbeddedGroups, clock: ManualClock) -> None:
    spec = TopicSpec("table", schema_of({"n": "int64"}), key=("n",), kind="table", partitions=1)
    table = Topic(log, log.create(spec))
    for n in range(6):
        table.append([{"n": n}])
    log.committer.run(lambda catalog: catalog.execute("UPDATE ends SET horizon = 4").fetchall())
    with Consumer(log, groups, group="g", topic="table", clock=clock) as consumer:
        assert read(consumer.poll(0, max_rows=1)) == [0, 1, 2, 3]
        consumer.commit()
        assert read(consumer.poll(0, max_rows=1)) == [4]
    with pytest.raises(Compacted):
        groups.reset("g", "table", {0: 2})

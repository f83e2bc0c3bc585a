"""What groups of every log backend must do. Subclass `GroupsContract`, give it `log`, `groups` and `clock` fixtures.

`clock` is a `ManualClock` that the log was opened with: time passes when a test says so.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import (
    BadName,
    BadOffset,
    BadPartition,
    GroupNotFound,
    Missed,
    NotAMember,
    Pinned,
    Rebalanced,
    TopicNotFound,
    UsageError,
)
from headwater.log import Log, Settings, Topic, TopicSpec
from headwater.log.groups import Assignment, Consumer, Groups, Start, assign, places
from headwater.records import schema_of

NUMBERS = TopicSpec("numbers", schema_of({"n": "int64"}), partitions=4)


class ManualClock:
    """Microseconds that pass when told to."""

    def __init__(self, at_s: float = 1_700_000_000.0) -> None:
        self._now = int(at_s * 1_000_000)

    def __call__(self) -> int:
        return self._now

    def pass_s(self, seconds: float) -> None:
        self._now += int(seconds * 1_000_000)


def fill(topic: Topic, partition: int, numbers: range) -> None:
    topic.append([{"n": n} for n in numbers], partition=partition)


def read(table: pa.Table | None) -> list[int]:
    return [] if table is None else sorted(table.column("n").to_pylist())


class GroupsContract:
    """`log` is an empty log of the backend under test, `groups` its groups."""

    @pytest.fixture
    def numbers(self, log: Log) -> Topic:
        return Topic(log, log.create(NUMBERS))

    def consumer(self, log: Log, groups: Groups, clock: ManualClock, member: str, **given: Any) -> Consumer:
        wanted = {"group": "g", "topic": "numbers", "session_s": 30.0, **given}
        return Consumer(log, groups, member=member, clock=clock, **wanted)

    # --- assignment ---

    @pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
    def test_every_partition_has_one_member_and_shares_are_even(self, count: int) -> None:
        given = assign([f"m{n}" for n in range(count)], 8)
        assert sorted(p for own in given.values() for p in own) == list(range(8))
        sizes = [len(own) for own in given.values()]
        assert max(sizes) - min(sizes) <= 1

    @pytest.mark.usefixtures("numbers")
    def test_a_join_and_a_leave_give_partitions_out_anew(self, groups: Groups) -> None:
        assert groups.join("g", "numbers", "b") == Assignment(1, (0, 1, 2, 3))
        assert groups.join("g", "numbers", "a") == Assignment(2, (0, 1))
        assert groups.heartbeat("g", "numbers", "b") == Assignment(2, (2, 3))
        groups.leave("g", "numbers", "a")
        assert groups.assignment("g", "numbers", "b") == Assignment(3, (0, 1, 2, 3))
        groups.leave("g", "numbers", "a")
        assert groups.assignment("g", "numbers", "b").generation == 3

    @pytest.mark.usefixtures("numbers")
    def test_a_member_that_is_silent_for_a_session_is_removed_by_anyones_heartbeat(
        self, groups: Groups, clock: ManualClock
    ) -> None:
        groups.join("g", "numbers", "a", session_s=10)
        groups.join("g", "numbers", "b", session_s=30)
        clock.pass_s(9)
        assert groups.heartbeat("g", "numbers", "b", session_s=30).partitions == (2, 3)
        clock.pass_s(1)
        assert [(m.name, m.alive) for m in groups.members("g", "numbers")] == [("a", False), ("b", True)]
        assert groups.heartbeat("g", "numbers", "b", session_s=30) == Assignment(3, (0, 1, 2, 3))
        with pytest.raises(NotAMember, match="'a' is not a member of group 'g' on topic 'numbers'"):
            groups.heartbeat("g", "numbers", "a")

    @pytest.mark.usefixtures("numbers")
    def test_a_silent_member_removes_itself_and_those_who_died_with_it(
        self, groups: Groups, clock: ManualClock
    ) -> None:
        groups.join("g", "numbers", "a", session_s=10)
        groups.join("g", "numbers", "b", session_s=10)
        clock.pass_s(11)
        with pytest.raises(NotAMember):
            groups.heartbeat("g", "numbers", "a")
        assert groups.members("g", "numbers") == []

    # --- commits ---

    def test_a_commit_never_goes_back_nor_beyond_the_end_and_is_all_or_nothing(
        self, groups: Groups, numbers: Topic
    ) -> None:
        fill(numbers, 0, range(10))
        now = groups.join("g", "numbers", "a").generation
        groups.commit("g", "numbers", "a", generation=now, offsets={0: 7})
        groups.commit("g", "numbers", "a", generation=now, offsets={0: 7})
        for wrong in (6, 11):
            with pytest.raises(BadOffset, match="Give an offset from 7 to 10; only a reset goes back"):
                groups.commit("g", "numbers", "a", generation=now, offsets={0: wrong})
        with pytest.raises(BadOffset):
            groups.commit("g", "numbers", "a", generation=now, offsets={0: 9, 1: 1})
        assert groups.committed("g", "numbers") == {0: 7, 1: 0, 2: 0, 3: 0}

    def test_a_zombies_commit_is_refused(self, groups: Groups, numbers: Topic, clock: ManualClock) -> None:
        fill(numbers, 0, range(10))
        old = groups.join("g", "numbers", "a", session_s=10).generation
        clock.pass_s(11)
        new = groups.join("g", "numbers", "b").generation
        groups.commit("g", "numbers", "b", generation=new, offsets={0: 4})
        with pytest.raises(Rebalanced, match="is at generation 2, not 1; nothing was committed"):
            groups.commit("g", "numbers", "a", generation=old, offsets={0: 9})
        with pytest.raises(NotAMember):
            groups.commit("g", "numbers", "a", generation=new, offsets={0: 9})
        assert groups.committed("g", "numbers")[0] == 4

    def test_an_older_process_of_the_same_name_is_refused(self, groups: Groups, numbers: Topic) -> None:
        fill(numbers, 0, range(10))
        old = groups.join("g", "numbers", "a").generation
        groups.join("g", "numbers", "a")
        with pytest.raises(Rebalanced):
            groups.commit("g", "numbers", "a", generation=old, offsets={0: 1})

    def test_only_partitions_of_ones_own_are_committed(self, groups: Groups, numbers: Topic) -> None:
        fill(numbers, 3, range(10))
        groups.join("g", "numbers", "b")
        now = groups.join("g", "numbers", "a").generation
        with pytest.raises(UsageError, match="partition 3 of topic 'numbers' is not assigned to 'a'. .* its own: 0, 1"):
            groups.commit("g", "numbers", "a", generation=now, offsets={3: 1})

    # --- lag, reset, removal ---

    def test_lag_counts_what_is_not_committed_and_says_who_reads_it(self, groups: Groups, numbers: Topic) -> None:
        fill(numbers, 0, range(10))
        now = groups.join("g", "numbers", "a").generation
        groups.commit("g", "numbers", "a", generation=now, offsets={0: 4})
        first, second, *_ = groups.lag("g", "numbers")
        assert (first.committed, first.end, first.lag, first.missed, first.member) == (4, 10, 6, 0, "a")
        assert (second.committed, second.lag) == (0, 0)

    def test_a_reset_moves_and_fences_those_who_run(self, groups: Groups, numbers: Topic) -> None:
        fill(numbers, 0, range(10))
        old = groups.join("g", "numbers", "a").generation
        groups.commit("g", "numbers", "a", generation=old, offsets={0: 8})
        assert groups.reset("g", "numbers", {0: 2}, dry_run=True) == {0: 8}
        assert groups.committed("g", "numbers")[0] == 8
        assert groups.reset("g", "numbers", {0: 2}) == {0: 8}
        assert groups.committed("g", "numbers") == {0: 2, 1: 0, 2: 0, 3: 0}
        with pytest.raises(Rebalanced):
            groups.commit("g", "numbers", "a", generation=old, offsets={0: 9})
        with pytest.raises(BadOffset, match="Give an offset from 0 to 10"):
            groups.reset("g", "numbers", {0: 11}, dry_run=True)
        with pytest.raises(BadPartition):
            groups.reset("g", "numbers", {4: 0})

    def test_places_to_reset_to(self, log: Log, numbers: Topic, clock: ManualClock) -> None:
        fill(numbers, 0, range(3))
        clock.pass_s(60)
        between = datetime.fromtimestamp(clock() / 1_000_000, UTC)
        fill(numbers, 0, range(3, 5))
        fill(numbers, 1, range(2))
        assert places(log, "numbers", "start") == {0: 0, 1: 0, 2: 0, 3: 0}
        assert places(log, "numbers", "end") == {0: 5, 1: 2, 2: 0, 3: 0}
        assert places(log, "numbers", between) == {0: 3, 1: 0, 2: 0, 3: 0}
        assert places(log, "numbers", between.replace(tzinfo=None)) == {0: 3, 1: 0, 2: 0, 3: 0}

    @pytest.mark.usefixtures("numbers")
    def test_groups_are_listed_and_removed_once_nobody_is_in_them(self, groups: Groups, clock: ManualClock) -> None:
        groups.join("g", "numbers", "a", session_s=10)
        assert [(g.name, g.topic, g.members) for g in groups.groups()] == [("g", "numbers", 1)]
        with pytest.raises(Pinned, match="removal of group 'g' .* 'a'"):
            groups.remove("g", "numbers")
        clock.pass_s(11)
        groups.remove("g", "numbers")
        assert groups.groups() == []

    @pytest.mark.parametrize("with_its_topic", [False, True])
    def test_a_group_made_again_does_not_take_a_zombie_of_the_first_for_its_own(
        self, log: Log, groups: Groups, numbers: Topic, clock: ManualClock, with_its_topic: bool
    ) -> None:
        fill(numbers, 0, range(10))
        groups.join("g", "numbers", "a", session_s=10)
        old = groups.join("g", "numbers", "a", session_s=10).generation
        clock.pass_s(11)
        if with_its_topic:
            log.delete("numbers")
            fill(Topic(log, log.create(NUMBERS)), 0, range(10))
        else:
            groups.remove("g", "numbers")
        for _ in range(4):  # the same member, as often as the first one joined and more
            new = groups.join("g", "numbers", "a", session_s=100).generation
            assert new > old
            with pytest.raises(Rebalanced):
                groups.commit("g", "numbers", "a", generation=old, offsets={0: 9})
        assert groups.committed("g", "numbers")[0] == 0
        groups.commit("g", "numbers", "a", generation=new, offsets={0: 4})

    @pytest.mark.usefixtures("numbers")
    def test_what_is_not_there_is_told(self, groups: Groups) -> None:
        with pytest.raises(TopicNotFound):
            groups.join("g", "nope", "a")
        with pytest.raises(GroupNotFound, match="there is no group 'g' on topic 'numbers'. Groups there: none"):
            groups.lag("g", "numbers")
        with pytest.raises(BadName, match="'a b' cannot name a group"):
            groups.join("a b", "numbers", "a")

    # --- consumers ---

    def test_a_consumer_goes_on_from_what_was_committed(
        self, log: Log, groups: Groups, numbers: Topic, clock: ManualClock
    ) -> None:
        fill(numbers, 0, range(5))
        fill(numbers, 1, range(5, 10))
        with self.consumer(log, groups, clock, "a") as first:
            assert read(first.poll(0)) == list(range(10))
            assert first.poll(0) is None
            first.commit()
            fill(numbers, 2, range(10, 12))
            assert read(first.poll(0)) == [10, 11]  # not committed
        with self.consumer(log, groups, clock, "b") as second:
            assert read(second.poll(0)) == [10, 11]

    @pytest.mark.parametrize(("start", "expected"), [("start", [0, 1]), ("end", [1])])
    def test_where_a_group_begins(
        self, log: Log, groups: Groups, numbers: Topic, clock: ManualClock, start: Start, expected: list[int]
    ) -> None:
        fill(numbers, 0, range(1))
        with self.consumer(log, groups, clock, "a", start=start) as consumer:
            fill(numbers, 0, range(1, 2))
            assert read(consumer.poll(0)) == expected

    def test_polls_end_where_appends_end(self, log: Log, groups: Groups, numbers: Topic, clock: ManualClock) -> None:
        for n in range(0, 70, 7):
            fill(numbers, n % 4, range(n, n + 7))
        fill(numbers, 0, range(70, 170))
        with self.consumer(log, groups, clock, "a") as consumer:
            polled = [read(consumer.poll(0, max_rows=20)) for _ in range(7)]
        assert [len(each) for each in polled] == [14, 14, 14, 14, 14, 100, 0]
        assert sorted(n for each in polled for n in each) == list(range(170))

    def test_partitions_move_to_a_second_member_and_back_when_it_dies(
        self, log: Log, groups: Groups, numbers: Topic, clock: ManualClock
    ) -> None:
        fill(numbers, 0, range(5))
        fill(numbers, 3, range(5, 10))
        with self.consumer(log, groups, clock, "a") as first:
            assert len(read(first.poll(0))) == 10
            second = self.consumer(log, groups, clock, "b").__enter__()
            with pytest.raises(Rebalanced):
                first.commit()
            assert read(first.poll(0)) == [0, 1, 2, 3, 4]  # again: it was not committed
            first.commit()
            assert read(second.poll(0)) == [5, 6, 7, 8, 9]
            clock.pass_s(31)  # both were silent; the first comes back, the second never does
            assert read(first.poll(0)) == [5, 6, 7, 8, 9]
            assert first.partitions == (0, 1, 2, 3)
            first.commit()
            with pytest.raises(Rebalanced):
                second.commit()
            assert groups.committed("g", "numbers") == {0: 5, 1: 0, 2: 0, 3: 5}

    def test_polling_keeps_a_member_alive(self, log: Log, groups: Groups, numbers: Topic, clock: ManualClock) -> None:
        with self.consumer(log, groups, clock, "a") as consumer:
            for n in range(10):
                clock.pass_s(20)
                fill(numbers, 0, range(n, n + 1))
                assert read(consumer.poll(0)) == [n]
                consumer.commit()
            assert groups.members("g", "numbers")[0].alive
            assert groups.groups()[0].generation == 1

    def test_a_group_behind_what_is_kept_is_told_what_it_missed(
        self, log: Log, groups: Groups, clock: ManualClock
    ) -> None:
        spec = TopicSpec("numbers", NUMBERS.schema, partitions=1, settings=Settings(most_rows=10))
        numbers = Topic(log, log.create(spec))
        fill(numbers, 0, range(5))
        with self.consumer(log, groups, clock, "a") as consumer:
            assert len(read(consumer.poll(0))) == 5
            consumer.commit()
            fill(numbers, 0, range(5, 10))
            fill(numbers, 0, range(10, 18))
            for _ in range(2):
                with pytest.raises(Missed) as told:
                    consumer.poll(0)
                missed = told.value
                assert (missed.topic, missed.partition, missed.asked, missed.first) == ("numbers", 0, 5, 8)
            assert (groups.lag("g", "numbers")[0].missed, groups.lag("g", "numbers")[0].lag) == (3, 13)
            groups.reset("g", "numbers", {missed.partition: missed.first})
            assert read(consumer.poll(0)) == list(range(8, 18))

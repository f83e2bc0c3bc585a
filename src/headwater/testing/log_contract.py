"""What every log backend must do. Subclass `LogContract`, give it a `log` fixture, run pytest."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import (
    BadName,
    BadPartition,
    BadRecord,
    Fenced,
    ProgressBroken,
    TopicMismatch,
    TopicNotFound,
    UsageError,
)
from headwater.log import Log, Position, Producer, Progress, Topic, TopicSpec
from headwater.log.position import AppendNumber, Epoch
from headwater.log.protocol import Snapshot
from headwater.records import schema_of

CLICKS = TopicSpec("clicks", schema_of({"user_id": "int64", "page": "string"}), key=("user_id",))
USERS = TopicSpec("users", schema_of({"user_id": "int64", "name": "string"}), key=("user_id",), kind="table")


def click(number: int) -> dict[str, Any]:
    return {"user_id": number, "page": f"/{number}"}


def at(number: int) -> Position:
    return Position.of({"clicks": {0: number}})


class LogContract:
    """`log` is an empty log of the backend under test."""

    @pytest.fixture
    def clicks(self, log: Log) -> Topic:
        return Topic(log, log.create(CLICKS))

    # --- topics ---

    def test_a_topic_is_there_once_it_is_made(self, log: Log) -> None:
        log.create(CLICKS)
        assert log.topic("clicks") == CLICKS
        assert [spec.name for spec in log.topics()] == ["clicks"]

    def test_making_it_again_alike_changes_nothing_and_otherwise_is_refused(self, log: Log) -> None:
        log.create(CLICKS)
        assert log.create(CLICKS) == CLICKS
        with pytest.raises(TopicMismatch, match="another partitions: it has 4, declared is 8"):
            log.create(TopicSpec("clicks", CLICKS.schema, key=("user_id",), partitions=8))

    def test_an_unknown_topic_is_named_with_those_there_are(self, log: Log) -> None:
        log.create(CLICKS)
        with pytest.raises(TopicNotFound, match="there is no topic 'click'. Topics here: clicks"):
            log.topic("click")

    @pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "1a", "x" * 201, ".", "a\n"])
    def test_a_name_that_could_be_a_path_is_refused(self, name: str) -> None:
        with pytest.raises(BadName):
            TopicSpec(name, CLICKS.schema)

    # --- append and read ---

    def test_what_was_appended_is_read_back_in_order_with_its_metadata(self, clicks: Topic) -> None:
        clicks.append([click(n) for n in range(100)])
        clicks.append([click(n) for n in range(100, 120)])
        rows = clicks.read().to_pylist()
        assert sorted(row["user_id"] for row in rows) == list(range(120))
        for partition in range(4):
            own = [row for row in rows if row["_partition"] == partition]
            assert [row["_offset"] for row in own] == list(range(len(own)))
            assert [row["user_id"] for row in own] == sorted(row["user_id"] for row in own)

    def test_a_key_always_goes_to_the_same_partition(self, clicks: Topic) -> None:
        for _ in range(3):
            clicks.append([click(n) for n in range(50)])
        rows = clicks.read().to_pylist()
        places = {(row["user_id"], row["_partition"]) for row in rows}
        assert len(places) == 50

    def test_a_large_append_is_read_like_a_small_one(self, clicks: Topic) -> None:
        many = pa.table({"user_id": range(50_000), "page": [f"/{n}" for n in range(50_000)]})
        clicks.append(many)
        clicks.append([click(1)])
        read = clicks.read()
        assert read.num_rows == 50_001
        assert sorted(read["user_id"].to_pylist()) == sorted([*range(50_000), 1])

    def test_append_returns_the_position_right_after_it(self, clicks: Topic) -> None:
        first = clicks.append([click(n) for n in range(10)])
        second = clicks.append([click(10)])
        assert clicks.end().covers(first)
        assert clicks.end().covers(second)
        assert clicks.read(start=first).num_rows == 1
        assert clicks.read(end=first).num_rows == 10

    def test_a_record_that_does_not_fit_leaves_nothing_behind(self, clicks: Topic) -> None:
        with pytest.raises(BadRecord):
            clicks.append([click(1), {"user_id": "two"}])
        assert clicks.read().num_rows == 0

    def test_one_append_over_several_topics_is_one_append(self, log: Log, clicks: Topic) -> None:
        users = Topic(log, log.create(USERS))
        done = log.append([*clicks.parts([click(1)]), *users.parts([{"user_id": 1, "name": "Ann"}])])
        assert set(done.position.topics) == {"clicks", "users"}
        assert log.snapshot(["clicks", "users"]).number == done.number

    def test_a_part_for_a_partition_that_is_not_there_is_refused(self, log: Log, clicks: Topic) -> None:
        with pytest.raises(BadPartition, match="has no partition 4. Use 0 to 3"):
            log.stage("clicks", 4, pa.RecordBatch.from_pylist([click(1)], CLICKS.stored))

    def test_scanning_selects_offsets_and_columns(self, log: Log) -> None:
        one = Topic(log, log.create(TopicSpec("one", CLICKS.schema, partitions=1)))
        for n in range(5):
            one.append([click(2 * n), click(2 * n + 1)])
        batches = list(log.scan("one", 0, 3, 8, columns=["page"]))
        assert [row for batch in batches for row in batch.column("page").to_pylist()] == [f"/{n}" for n in range(3, 8)]
        assert list(log.scan("one", 0, 10, 99)) == []

    # --- producers ---

    def test_the_same_sequence_twice_is_one_append_with_one_answer(self, log: Log, clicks: Topic) -> None:
        producer = log.begin("p")
        first = clicks.append_parts([click(1)], producer=producer, sequence=0)
        clicks.append([click(2)])
        again = clicks.append_parts([click(1)], producer=producer, sequence=0)
        assert (again.number, again.position, again.repeated) == (first.number, first.position, True)
        assert clicks.read().num_rows == 2

    def test_an_older_epoch_is_refused_everywhere(self, log: Log, clicks: Topic) -> None:
        old, new = log.begin("p"), log.begin("p")
        clicks.append([click(1)], producer=new, sequence=0)
        with pytest.raises(Fenced, match="'p' at epoch 1 was replaced by epoch 2"):
            clicks.append([click(2)], producer=old, sequence=1)
        with pytest.raises(Fenced):
            log.check(old)
        with pytest.raises(Fenced):
            log.stage("clicks", 0, pa.RecordBatch.from_pylist([click(1)], CLICKS.stored), producer=old)
        log.check(new)
        assert clicks.read().num_rows == 1

    def test_a_sequence_appended_by_an_older_epoch_is_still_known(self, log: Log, clicks: Topic) -> None:
        clicks.append([click(1)], producer=log.begin("p"), sequence=0)
        again = clicks.append_parts([click(1)], producer=log.begin("p"), sequence=0)
        assert again.repeated
        assert clicks.read().num_rows == 1

    def test_a_sequence_does_not_go_back(self, log: Log, clicks: Topic) -> None:
        producer = log.begin("p")
        clicks.append([click(1)], producer=producer, sequence=5)
        with pytest.raises(ProgressBroken, match="the sequence goes back from 5"):
            clicks.append([click(2)], producer=producer, sequence=3)

    def test_a_producer_without_a_sequence_is_refused(self, clicks: Topic) -> None:
        with pytest.raises(UsageError):
            clicks.append([click(1)], producer=Producer("p", Epoch(1)))

    # --- progress ---

    def test_progress_is_stored_with_the_append_and_may_come_without_rows(self, log: Log) -> None:
        producer = log.begin("p")
        assert log.covered("p") is None
        first = log.append([], producer=producer, sequence=0, progress=Progress(at(0), at(3)))
        log.append([], producer=producer, sequence=1, progress=Progress(at(3), at(9)))
        covered = log.covered("p")
        assert covered is not None
        assert (covered.sequence, covered.progress) == (1, Progress(at(3), at(9)))
        earlier = log.covered("p", at=first.number)
        assert earlier is not None
        assert earlier.sequence == 0

    def test_progress_goes_on_exactly_where_it_ended(self, log: Log) -> None:
        producer = log.begin("p")
        with pytest.raises(ProgressBroken, match="not at the start"):
            log.append([], producer=producer, sequence=0, progress=Progress(at(1), at(3)))
        log.append([], producer=producer, sequence=0, progress=Progress(at(0), at(3)))
        with pytest.raises(ProgressBroken, match="begins at clicks:0=4, but the last append ended at clicks:0=3"):
            log.append([], producer=producer, sequence=1, progress=Progress(at(4), at(5)))

    def test_a_repeated_sequence_for_other_inputs_is_refused(self, log: Log) -> None:
        producer = log.begin("p")
        log.append([], producer=producer, sequence=0, progress=Progress(at(0), at(3)))
        assert log.append([], producer=producer, sequence=0, progress=Progress(at(0), at(3))).repeated
        with pytest.raises(ProgressBroken, match="appended before for inputs"):
            log.append([], producer=producer, sequence=0, progress=Progress(at(0), at(4)))

    # --- boundaries ---

    def test_a_snapshot_ends_on_an_append_even_with_a_limit(self, log: Log, clicks: Topic) -> None:
        for n in range(10):
            clicks.append([click(7 * n + m) for m in range(7)])
        counted, after = [], None
        while True:
            following = log.snapshot(["clicks"], after=after, max_rows=20)
            rows = sum(offset for _, by in following.position.ends for _, offset in by)
            if after is not None and following.position == after.position:
                break
            counted.append(rows)
            after = following
        assert counted == [14, 28, 42, 56, 70]

    def test_an_append_larger_than_the_limit_is_a_batch_of_its_own(self, log: Log, clicks: Topic) -> None:
        clicks.append([click(n) for n in range(100)])
        clicks.append([click(1)])
        first = log.snapshot(["clicks"], max_rows=10)
        assert first.number == 1
        assert log.snapshot(["clicks"], after=first, max_rows=10).number == 2

    def test_appends_elsewhere_do_not_move_a_topics_snapshot(self, log: Log, clicks: Topic) -> None:
        users = Topic(log, log.create(USERS))
        clicks.append([click(1)])
        before = log.snapshot(["clicks"])
        users.append([{"user_id": 1, "name": "Ann"}])
        after = log.snapshot(["clicks"], after=Snapshot(before.number, before.position), max_rows=1)
        assert after.position == before.position

    def test_the_ends_at_an_append_are_those_right_after_it(self, log: Log) -> None:
        one = Topic(log, log.create(TopicSpec("one", CLICKS.schema, partitions=1)))
        numbers = [one.append_parts([click(n)] * (n + 1)).number for n in range(4)]
        assert [log.position_at("one", number)[0] for number in numbers] == [1, 3, 6, 10]
        assert log.position_at("one", AppendNumber(0))[0] == 0

    def test_waiting_ends_at_once_for_what_is_there_and_in_time_for_what_is_not(self, log: Log, clicks: Topic) -> None:
        clicks.append([click(1)])
        assert log.wait(AppendNumber(0), 10) == 1
        assert log.wait(AppendNumber(1), 0.01) == 1

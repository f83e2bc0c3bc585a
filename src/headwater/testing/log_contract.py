"""What every log backend must do. Subclass `LogContract`, give it a `log` fixture, run pytest."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import (
    BadName,
    BadPartition,
    BadRecord,
    Fenced,
    Full,
    Missed,
    ProgressBroken,
    SchemaRefused,
    TopicMismatch,
    TopicNotFound,
    UsageError,
    VersionConflict,
)
from headwater.log import Log, Position, Producer, Progress, Settings, Topic, TopicSpec
from headwater.log.position import AppendNumber, Epoch
from headwater.log.protocol import Snapshot
from headwater.records import schema_of
from headwater.testing.together_contract import TogetherContract

CLICKS = TopicSpec("clicks", schema_of({"user_id": "int64", "page": "string"}), key=("user_id",))
USERS = TopicSpec("users", schema_of({"user_id": "int64", "name": "string"}), key=("user_id",), kind="table")


def click(number: int) -> dict[str, Any]:
    return {"user_id": number, "page": f"/{number}"}


def at(number: int) -> Position:
    return Position.of({"clicks": {0: number}})


class LogContract(TogetherContract):
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

    # --- rows of every kind ---

    def test_dicts_arrow_pandas_and_lines_are_the_same_records(self, clicks: Topic) -> None:
        import pandas as pd

        row = click(7)
        for rows in ([row], pa.Table.from_pylist([row]), pd.DataFrame([row]), '{"user_id": 7, "page": "/7"}\n'):
            clicks.append(rows)
        assert {(each["user_id"], each["page"]) for each in clicks.read().to_pylist()} == {(7, "/7")}
        assert clicks.read().num_rows == 4

    def test_every_type_comes_back_as_it_went_in(self, log: Log) -> None:
        topic = Topic(log, log.create(TopicSpec("all", schema_of(EVERY_TYPE), partitions=1)))
        topic.append([EVERY_VALUE, {}])
        first, second = topic.read().select(list(EVERY_TYPE)).to_pylist()
        assert first == {**EVERY_VALUE, "m": [("a", 1), ("b", None)]}
        assert set(second.values()) == {None}

    def test_a_partition_may_be_given(self, clicks: Topic) -> None:
        clicks.append([click(n) for n in range(10)], partition=3)
        assert set(clicks.read()["_partition"].to_pylist()) == {3}

    # --- from a time, following ---

    def test_reading_from_a_time_begins_with_the_first_record_appended_then(self, log: Log, clicks: Topic) -> None:
        clicks.append([click(1)])
        later = clicks.read()["_appended_at"].to_pylist()[0] + timedelta(microseconds=1)
        assert clicks.read(start=later).num_rows == 0
        assert clicks.read(start=later - timedelta(seconds=1)).num_rows == 1

    def test_following_gives_what_is_there_and_what_comes_each_with_its_position(self, clicks: Topic) -> None:
        clicks.append([click(1)])
        following = clicks.follow(timeout_s=5)
        _, first = next(following)
        clicks.append([click(2)])
        batch, second = next(following)
        assert batch.column("user_id").to_pylist() == [2]
        assert second.covers(first)
        assert list(clicks.follow(start=second, timeout_s=0.01)) == []

    # --- schemas that evolve ---

    def test_a_column_is_added_and_old_records_have_null_there(self, log: Log, clicks: Topic) -> None:
        clicks.append([click(1)])
        clicks.alter(schema=CLICKS.schema.append(pa.field("country", pa.string())))
        clicks.append([{**click(1), "country": "de"}])
        assert clicks.read()["country"].to_pylist() == [None, "de"]
        assert log.topic("clicks").schema.names == ["user_id", "page", "country"]

    def test_a_type_is_widened(self, log: Log) -> None:
        topic = Topic(log, log.create(TopicSpec("t", schema_of({"a": "int16", "b": "float32"}), partitions=1)))
        topic.append([{"a": 1, "b": 0.5}])
        topic.alter(schema=schema_of({"a": "int64", "b": "float64"}))
        topic.append([{"a": 2**40, "b": 0.1}])
        assert topic.read()["a"].to_pylist() == [1, 2**40]
        assert topic.read()["b"].to_pylist() == [0.5, 0.1]

    def test_a_declaration_with_more_columns_evolves_the_topic(self, log: Log) -> None:
        log.create(CLICKS)
        wider = CLICKS.with_schema(CLICKS.schema.append(pa.field("country", pa.string())))
        assert log.create(wider).schema.names == ["user_id", "page", "country"]

    @pytest.mark.parametrize(
        ("columns", "told"),
        [
            ({"user_id": "int64"}, "column 'page': a column cannot be removed"),
            ({"user_id": "int32", "page": "string"}, "column 'user_id': int64 cannot become int32"),
            ({"user_id": "int64", "page": "int64"}, "column 'page': string cannot become int64"),
        ],
    )
    def test_any_other_change_is_refused_with_the_columns_name(
        self, log: Log, clicks: Topic, columns: dict[str, str], told: str
    ) -> None:
        with pytest.raises(SchemaRefused, match=told):
            log.alter("clicks", schema=schema_of(columns))

    # --- versions ---

    def test_a_conditional_append_needs_the_version_it_expects(self, log: Log) -> None:
        topic = Topic(log, log.create(TopicSpec("v", CLICKS.schema, key=("user_id",), versioned=True)))
        topic.append([click(1)], expect={(1,): 0})
        topic.append([click(1), click(1), click(2)], expect={(1,): 1, (2,): 0})
        assert log.versions("v", [(1,), (2,), (3,)]) == [3, 1, 0]
        with pytest.raises(VersionConflict, match=r"key \(1,\) is at version 3, not 1; nothing was appended"):
            topic.append([click(1)], expect={(1,): 1})
        assert topic.read().num_rows == 4

    def test_versions_are_kept_only_where_asked_for(self, clicks: Topic) -> None:
        with pytest.raises(UsageError, match="keeps no versions"):
            clicks.append([click(1)], expect={(1,): 0})

    # --- bounds ---

    def bounded(self, log: Log, when_full: Any) -> Topic:
        settings = Settings(most_rows=10, when_full=when_full)
        return Topic(log, log.create(TopicSpec("b", CLICKS.schema, partitions=1, settings=settings)))

    def test_a_ring_keeps_the_newest_and_counts_what_it_dropped(self, log: Log) -> None:
        topic = self.bounded(log, "drop_oldest")
        for n in range(0, 24, 4):
            topic.append([click(n + m) for m in range(4)])
        assert topic.read()["user_id"].to_pylist() == list(range(14, 24))
        assert log.extents("b")[0].dropped == 14
        with pytest.raises(Missed, match="offsets 3 to 13 are gone, 14 is the first"):
            list(log.scan("b", 0, 3, 24))

    def test_a_full_topic_may_refuse_the_newest_and_count_them(self, log: Log) -> None:
        topic = self.bounded(log, "drop_newest")
        topic.append([click(n) for n in range(8)])
        refused = topic.append_parts([click(n) for n in range(8, 12)])
        assert refused.dropped == 4
        assert topic.append_parts([click(12), click(13)]).dropped == 0
        assert topic.read()["user_id"].to_pylist() == [*range(8), 12, 13]
        assert log.extents("b")[0].dropped == 4

    def test_a_topic_that_blocks_says_so_when_there_is_no_room_in_time(self, log: Log) -> None:
        topic = self.bounded(log, "block")
        topic.append([click(n) for n in range(10)])
        with pytest.raises(Full, match="'b' has held its 10 records"):
            log.append(topic.parts([click(1)]), timeout_s=0.02)
        assert topic.read().num_rows == 10

    # --- upserts, deletion ---

    def test_an_upsert_table_takes_rows_and_tombstones(self, log: Log) -> None:
        spec = TopicSpec("u", USERS.schema, key=("user_id",), kind="table", upsert=True, partitions=1)
        topic = Topic(log, log.create(spec))
        topic.upsert([{"user_id": 1, "name": "Ann"}])
        topic.delete([{"user_id": 1}])
        rows = [(row["user_id"], row["name"], row["_deleted"]) for row in topic.read().to_pylist()]
        assert rows == [(1, "Ann", False), (1, None, True)]

    def test_a_weighted_table_or_a_stream_takes_no_upsert(self, log: Log, clicks: Topic) -> None:
        users = Topic(log, log.create(USERS))
        for topic in (clicks, users):
            with pytest.raises(UsageError, match="was not made with upsert=True"):
                topic.upsert([{"user_id": 1}])

    def test_a_deleted_topic_is_gone_and_its_name_is_free(self, log: Log, clicks: Topic) -> None:
        clicks.append([click(1)])
        log.delete("clicks")
        with pytest.raises(TopicNotFound):
            log.topic("clicks")
        again = Topic(log, log.create(CLICKS))
        assert again.read().num_rows == 0


EVERY_TYPE = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f32": "float32", "f64": "float64", "s": "string", "raw": "binary", "day": "date",
    "at": "timestamp", "money": "decimal(18,4)", "l": "list<int64>", "st": "struct<a: int64, b: list<string>>",
    "m": "map<string, int64>",
}  # fmt: skip
EVERY_VALUE: dict[str, Any] = {
    "bool": True, "i8": -128, "i16": -(2**15), "i32": -(2**31), "i64": -(2**63), "u8": 255, "u16": 2**16 - 1,
    "u32": 2**32 - 1, "u64": 2**64 - 1, "f32": 0.5, "f64": 0.1, "s": "ä\0b", "raw": b"\x00\xff",
    "day": date(1969, 7, 20), "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "l": [1, None, 3],
    "money": Decimal("123456789.0001"), "st": {"a": 1, "b": ["x", None]}, "m": {"a": 1, "b": None},
}  # fmt: skip

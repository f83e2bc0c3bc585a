"""What every log backend must do about appends that are written together: part of `LogContract`."""

from __future__ import annotations

from typing import Any

from headwater.errors import BadRecord
from headwater.log import Log, Position, Settings, Topic, TopicSpec
from headwater.log.protocol import Appended, Snapshot
from headwater.records import schema_of

SCHEMA = schema_of({"user_id": "int64", "page": "string"})


def visit(number: int) -> dict[str, Any]:
    return {"user_id": number, "page": f"/{number}"}


class TogetherContract:
    """`log` is an empty log of the backend under test."""

    def test_appends_written_together_are_each_answered_or_refused_alone(self, log: Log) -> None:
        visits = Topic(log, log.create(TopicSpec("visits", SCHEMA, key=("user_id",))))
        before = log.snapshot(["visits"]).number
        first, refused, last = visits.append_each([[visit(1)], [{"user_id": "x"}], [visit(1), visit(1)]])
        assert isinstance(first, Appended)
        assert isinstance(last, Appended)
        assert isinstance(refused, BadRecord)
        assert [first.number, last.number] == [before + 1, before + 2]
        assert (first.position.total, last.position.total) == (1, 3)
        assert log.snapshot(["visits"], after=Snapshot(before, Position()), max_rows=1).position == first.position

    def test_appends_written_together_leave_out_topics_with_versions_or_a_bound(self, log: Log) -> None:
        bounded = TopicSpec("ring", SCHEMA, settings=Settings(most_rows=2, when_full="drop_oldest"))
        for spec in (bounded, TopicSpec("versioned", SCHEMA, key=("user_id",), versioned=True)):
            topic = Topic(log, log.create(spec))
            assert topic.append_each([[visit(1)]]) == [None]
            assert topic.read().num_rows == 0

    def test_a_change_is_told_to_who_asks_again(self, log: Log) -> None:
        visits = Topic(log, log.create(TopicSpec("visits", SCHEMA, key=("user_id",))))
        quiet = log.changed()
        assert log.changed() == quiet
        visits.append([visit(1)])
        assert log.changed() != quiet

"""What is refused leaves nothing behind and holds nobody up, also where another process has changed the topics."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater.errors import BadRecord, Full, TopicNotFound
from headwater.log import Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.protocol import Appended
from headwater.records import schema_of

COLUMNS = schema_of({"k": "int64", "said": "string"})


def made(log: EmbeddedLog, name: str, **more: Any) -> Topic:
    return Topic(log, log.create(TopicSpec(name, COLUMNS, key=("k",), **more)))


def rows(count: int) -> list[dict[str, Any]]:
    return [{"k": number, "said": "x"} for number in range(count)]


@pytest.mark.parametrize("versioned", [False, True])
def test_parts_of_a_topic_that_was_made_anew_are_refused_with_all_others(log: EmbeddedLog, versioned: bool) -> None:
    near, far = made(log, "near", partitions=1, versioned=versioned), made(log, "far", partitions=4)
    parts = [*near.parts(rows(1)), *far.parts(rows(20))]
    log.delete("far")
    made(log, "far", partitions=1)
    with pytest.raises(TopicNotFound):
        log.append(parts, expect={"near": {(0,): 0}} if versioned else None)
    assert near.read().num_rows == 0
    assert Topic(log, log.topic("far")).read().num_rows == 0


def test_a_topic_without_room_leaves_what_another_one_would_have_dropped(log: EmbeddedLog, other: EmbeddedLog) -> None:
    ring, full = made(log, "ring", partitions=1), made(log, "full", partitions=1)
    ring.append(rows(10))
    full.append(rows(10))
    other.alter("ring", settings=Settings(most_rows=10, when_full="drop_oldest"))
    other.alter("full", settings=Settings(most_rows=10, when_full="block"))
    with pytest.raises(Full):
        log.append([*ring.parts(rows(2)), *full.parts(rows(1))], timeout_s=0.05)
    assert ring.read().num_rows == 10


def test_a_key_that_is_no_text_is_refused_alone(log: EmbeddedLog) -> None:
    topic = Topic(log, log.create(TopicSpec("named", schema_of({"name": "string"}), key=("name",))))
    good, bad, last = topic.append_each([[{"name": "a"}], [{"name": "\ud800"}], [{"name": "b"}]])
    assert isinstance(good, Appended)
    assert isinstance(bad, BadRecord)
    assert isinstance(last, Appended)
    with pytest.raises(BadRecord):
        topic.append([{"name": "\ud800"}])
    assert sorted(topic.read()["name"].to_pylist()) == ["a", "b"]


def test_a_topic_made_anew_elsewhere_takes_appends_again(log: EmbeddedLog, other: EmbeddedLog) -> None:
    made(log, "t").append(rows(1))
    other.delete("t")
    made(other, "t")
    assert log.append_rows("t", rows(1)).position.total == 1
    other.delete("t")
    made(other, "t")
    (done,) = log.append_each("t", [rows(2)])
    assert isinstance(done, Appended)
    assert done.position.total == 2


def test_columns_added_elsewhere_are_taken(log: EmbeddedLog, other: EmbeddedLog) -> None:
    made(log, "t").append(rows(1))
    other.alter("t", schema=schema_of({"k": "int64", "said": "string", "more": "int64"}))
    fits, not_at_all = log.append_each("t", [[{"k": 1, "said": "x", "more": 2}], [{"k": 1, "never": 3}]])
    assert isinstance(fits, Appended)
    assert isinstance(not_at_all, BadRecord)
    log.append_rows("t", [{"k": 1, "said": "x", "more": 2}])
    with pytest.raises(BadRecord):
        log.append_rows("t", [{"k": 1, "never": 3}])


class _CtrlC:
    """A lock after whose first release Ctrl-C is pressed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pressed = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if not self._pressed:
            self._pressed = True
            raise KeyboardInterrupt


def test_ctrl_c_as_soon_as_a_writer_leads_leaves_others_their_turn(log: EmbeddedLog) -> None:
    topic = made(log, "t")
    log.committer._queue = _CtrlC()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        topic.append(rows(1))
    follower = threading.Thread(target=topic.append, args=(rows(2),), daemon=True)
    follower.start()
    follower.join(10)
    assert not follower.is_alive()
    assert topic.read().num_rows == 2, "and what was interrupted is not written by another"

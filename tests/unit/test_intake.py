"""Bodies become records: what is taken, what is refused and why; an event that comes again is appended once."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import headwater as hw
from headwater.capture.intake import Intake, gathered
from headwater.capture.intake.arrow import FILE, STREAM
from headwater.capture.intake.bodies import MediaType, rows_in
from headwater.capture.intake.once import SEEN
from headwater.errors import BadRecord, BadRequest, TooLarge
from headwater.log import TopicSpec
from headwater.records import schema_of
from headwater.serve.http import make_api

DAY_US = 86_400_000_000
CLICKS = {"user_id": "int64", "page": "string", "at": "timestamp"}
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid"}


def topic_of(log: hw.Log, columns: dict[str, str], **given: Any) -> hw.Topic:
    return hw.Topic(log, log.create(TopicSpec("events", schema_of(columns), **given)))


def rows(topic: hw.Topic) -> list[dict[str, Any]]:
    return [{name: row[name] for name in topic.spec.schema.names} for row in topic.read().to_pylist()]


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return bytes(sink.getvalue().to_pybytes())


TABLE = pa.table({"user_id": [1, 2, 3], "page": ["/a", None, "/c"]})


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", json.dumps(TABLE.to_pylist()).encode()),
        ("Application/JSON; charset=UTF-8", json.dumps(TABLE.to_pylist()).encode()),
        ("", json.dumps(TABLE.to_pylist()).encode()),
        ("application/x-ndjson", "\r\n".join(json.dumps(row) for row in TABLE.to_pylist()).encode() + b"\n\n"),
        (STREAM, stream(TABLE)),
        (STREAM, stream(TABLE, compression="zstd")),
        (STREAM, stream(TABLE, compression="lz4")),
        (FILE, file(TABLE)),
    ],
)
def test_each_kind_of_body_gives_the_same_records(log: hw.Log, kind: str, body: bytes) -> None:
    topic = topic_of(log, {"user_id": "int64", "page": "string"}, partitions=1)
    done = Intake(topic).take(body, kind)
    assert rows(topic) == TABLE.to_pylist()
    assert done.position == topic.end()


def test_a_body_with_a_producer_and_a_sequence_is_appended_once(log: hw.Log) -> None:
    topic = topic_of(log, {"user_id": "int64"})
    producer = log.begin("web")
    answers = [Intake(topic).take(b'{"user_id": 1}', producer=producer, sequence=4) for _ in range(2)]
    assert [each.repeated for each in answers] == [False, True]
    assert len(rows(topic)) == 1


WORDS = pa.array(["a", "b"]).dictionary_encode()


@pytest.mark.parametrize(
    ("kind", "body", "told"),
    [
        ("application/json", b"{not", "the body is not JSON"),
        ("application/json", b"[" * 100_000, "the body is not JSON"),
        ("application/json", b"\xff\xfe\xff", "the body is not JSON"),
        ("application/x-ndjson", b'{"user_id": 1}\n{"user_id":', "line 2 of the body is not JSON"),
        ("application/json; charset=latin-1", b"{}", "character set 'latin-1'"),
        ("text/csv", b"a,b", "cannot be sent as text/csv"),
        (STREAM, b"", "the body is not Arrow"),
        (STREAM, b"ARROW1\0\0" + b"\xff" * 64, "the body is not Arrow"),
        (STREAM, stream(TABLE)[:-60], "the body is not Arrow"),
        (FILE, stream(TABLE), "does not begin as an Arrow file"),
        (STREAM, stream(pa.table({"page": WORDS})), "type dictionary<values=string"),
        (STREAM, stream(pa.table({"page": pa.nulls(5_000_000)})), "more than 4000000 rows"),
        ("application/cloudevents+json", b"[]", "the event is a list, not an object"),
        ("application/cloudevents-batch+json", b"{}", "a batch of events is not an array"),
        ("application/cloudevents+avro", b"", "events cannot be sent as application/cloudevents+avro"),
    ],
)
def test_what_cannot_be_read_is_refused_and_said(log: hw.Log, kind: str, body: bytes, told: str) -> None:
    topic = topic_of(log, CLICKS)
    with pytest.raises(BadRequest) as refused:
        Intake(topic).take(body, kind)
    assert told in str(refused.value)
    assert rows(topic) == []


def test_a_small_body_that_would_unpack_to_much_is_refused_before_it_is_unpacked(log: hw.Log) -> None:
    zeros = pa.array(np.zeros(1_000_000, np.int64))
    bomb = stream(pa.table({f"n{place}": zeros for place in range(20)}), compression="zstd")
    assert len(bomb) < 200_000
    before = pa.total_allocated_bytes()
    with pytest.raises(TooLarge, match="larger than 134217728 bytes"):
        Intake(topic_of(log, CLICKS)).take(bomb, STREAM)
    assert pa.total_allocated_bytes() - before < 10_000_000


def test_every_arrow_body_with_a_broken_byte_is_read_or_refused(log: hw.Log) -> None:
    """Never a crash, never another error than ours."""
    topic = topic_of(log, {"user_id": "int64", "page": "string"})
    for whole in (stream(TABLE), stream(TABLE, compression="lz4")):
        for place in range(len(whole)):
            broken = bytearray(whole)
            broken[place] ^= 0xFF
            try:
                topic.parts(rows_in(bytes(broken), MediaType(STREAM)))
            except (BadRequest, BadRecord, TooLarge):
                continue


def test_a_body_that_is_too_large_is_refused_as_it_comes(log: hw.Log) -> None:
    asked = []

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(100):
            asked.append(number)
            yield b"x" * 100

    with pytest.raises(TooLarge):
        asyncio.run(gathered(pieces(), limit_bytes=1000))
    assert len(asked) == 11
    with pytest.raises(TooLarge):
        Intake(topic_of(log, CLICKS), limit_bytes=10).take(b" " * 11)


# --- CloudEvents ---

ORDERS = {
    "order": "int64",
    "id": "string",
    "source": "string",
    "type": "string",
    "time": "timestamp",
    "trace": "string",
}


def test_structured_batched_and_binary_events_become_the_same_record(log: hw.Log) -> None:
    topic = topic_of(log, ORDERS, partitions=1)
    intake = Intake(topic)
    told = {**EVENT, "time": "2026-01-02T03:04:05.5Z", "trace": "é", "subject": "left out"}
    intake.take(json.dumps({**told, "data": {"order": 7}}).encode(), "application/cloudevents+json; charset=utf-8")
    batch = [{**told, "id": name, "data": {"order": 7}} for name in ("2", "3", "2")]
    intake.take(json.dumps(batch).encode(), "application/cloudevents-batch+json")
    headers = {f"CE-{name}": value for name, value in {**told, "id": "4", "trace": "%C3%A9"}.items()}
    intake.take(b'{"order": 7}', "application/json", headers)
    encoded = base64.b64encode(b'{"order": 7}').decode()
    body = {**told, "id": "5", "datacontenttype": "application/json", "data_base64": encoded}
    intake.take(json.dumps(body).encode(), "application/cloudevents+json")

    found = rows(topic)
    assert [row["id"] for row in found] == ["1", "2", "3", "4", "5"]
    assert {json.dumps({**row, "id": ""}, default=str) for row in found} == {
        json.dumps(
            {
                "order": 7,
                "id": "",
                "source": "/shop",
                "type": "order.paid",
                "time": "2026-01-02 03:04:05.500000+00:00",
                "trace": "é",
            }
        )
    }


@pytest.mark.parametrize(
    ("columns", "data", "record"),
    [
        ({"id": "int64"}, {"id": 9}, {"id": 9}),  # what the data says counts
        ({"data": "string", "type": "string"}, "words", {"data": "words", "type": "order.paid"}),
        ({"data": "string"}, [1, 2], {"data": "[1, 2]"}),
        ({"data": "int64"}, 5, {"data": 5}),
        ({"data": "string", "a": "int64"}, {"a": 1, "new": 2}, {"data": '{"a": 1, "new": 2}', "a": 1}),
        ({"data": "binary", "a": "int64"}, {"a": 1}, {"data": b'{"a": 1}', "a": 1}),
        ({"type": "string"}, None, {"type": "order.paid"}),
    ],
)
def test_how_data_and_attributes_find_their_columns(
    log: hw.Log, columns: dict[str, str], data: Any, record: dict[str, Any]
) -> None:
    topic = topic_of(log, columns)
    Intake(topic).take(json.dumps({**EVENT, "data": data}).encode(), "application/cloudevents+json")
    assert rows(topic) == [record]


def test_data_in_binary_mode_that_is_not_json_goes_to_the_column_data(log: hw.Log) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": '"quo\\"ted"', "ce-source": "s", "ce-type": "t"}
    topic = topic_of(log, {"id": "string", "data": "binary", "datacontenttype": "string"})
    Intake(topic).take(b"\xff\x00", "image/png", headers)
    assert rows(topic) == [{"id": 'quo"ted', "data": b"\xff\x00", "datacontenttype": "image/png"}]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"id": None}, "the event has no id"),
        ({"source": ""}, "the source '', which is no text or empty"),
        ({"type": 7}, "the type 7, which is no text"),
        ({"specversion": "0.3"}, "the specversion '0.3', and 1.0 is known here"),
        ({"specversion": None}, "the specversion None"),
        ({"time": "yesterday"}, "the time 'yesterday', which is not as RFC 3339 has it"),
        ({"time": "2026-01-01T00:00:00"}, "is not as RFC 3339 has it"),
        ({"MyExtension": "x"}, "an attribute 'MyExtension', and names are of a to z and 0 to 9"),
        ({"extension": {"a": 1}}, "an attribute 'extension' that is a dict"),
        ({"data": 1, "data_base64": "AA=="}, "has both data and data_base64"),
        ({"data_base64": "%%%"}, "a data_base64 that is not base64"),
        ({"id": "\ud800"}, "has half of a letter in its id"),
    ],
)
def test_an_event_that_is_none_is_refused_and_said(log: hw.Log, changes: dict[str, Any], told: str) -> None:
    topic = topic_of(log, {"id": "string"})
    with pytest.raises(BadRequest) as refused:
        Intake(topic).take(json.dumps({**EVENT, **changes}).encode(), "application/cloudevents+json")
    assert told in str(refused.value)
    with pytest.raises(BadRequest) as refused:
        Intake(topic).take(json.dumps([EVENT, {**EVENT, **changes}]).encode(), "application/cloudevents-batch+json")
    assert "event 1 of the batch" in str(refused.value)
    assert rows(topic) == []


def event(number: int, **more: Any) -> dict[str, Any]:
    return {**EVENT, "id": str(number), "data": {"order": number}, **more}


def test_an_event_that_comes_again_is_appended_once_and_told_so(log: hw.Log) -> None:
    topic = topic_of(log, {"order": "int64"}, partitions=1)
    batched = "application/cloudevents-batch+json"
    first = Intake(topic).take(json.dumps([event(1), event(2)]).encode(), batched)
    again = Intake(topic).take(json.dumps([event(2), event(1)]).encode(), batched)
    mixed = Intake(topic).take(json.dumps([event(2), event(3), event(3)]).encode(), batched)
    other = Intake(topic).take(json.dumps([event(3, source="/other")]).encode(), batched)
    assert [each.repeated for each in (first, again, mixed, other)] == [False, True, False, False]
    assert again.position == first.position
    assert mixed.position.topics == ("events",)
    assert [row["order"] for row in rows(topic)] == [1, 2, 3, 3]
    assert not Intake(topic).take(b"[]", batched).repeated


def test_threads_that_take_the_same_events_append_each_once(log: hw.Log) -> None:
    topic = topic_of(log, {"order": "int64"})
    start = threading.Barrier(4)

    def take() -> None:
        intake = Intake(topic)
        start.wait()
        for number in range(0, 60, 3):
            body = json.dumps([event(n) for n in range(number, number + 5)]).encode()
            intake.take(body, "application/cloudevents-batch+json")

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row["order"] for row in rows(topic)) == list(range(62))


def test_ids_are_remembered_for_the_length_asked_and_then_forgotten(log: hw.Log) -> None:
    now = [1000 * DAY_US]
    topic = topic_of(log, {"order": "int64"})
    intake = Intake(topic, remember="10 days", clock=lambda: now[0])

    def repeated(days: float) -> bool:
        now[0] = int((1000 + days) * DAY_US)
        return intake.take(json.dumps(event(1)).encode(), "application/cloudevents+json").repeated

    assert [repeated(days) for days in (0, 1, 9.9, 10.1, 20.1)] == [False, True, True, True, False]
    kept = [spec.name for spec in log.topics() if spec.name.startswith(SEEN)]
    assert kept == [f"{SEEN}events.{period}" for period in (101, 102, 103)]


def test_an_event_with_a_record_that_does_not_fit_is_not_remembered(log: hw.Log) -> None:
    topic = topic_of(log, {"order": "int64"})
    wrong = json.dumps(event(1, data={"order": "x"})).encode()
    with pytest.raises(BadRecord, match="'x' is not int64"):
        Intake(topic).take(wrong, "application/cloudevents+json")
    assert not Intake(topic).take(json.dumps(event(1)).encode(), "application/cloudevents+json").repeated


def test_an_id_that_would_be_remembered_for_long_is_short(log: hw.Log) -> None:
    topic = topic_of(log, {"order": "int64"})
    with pytest.raises(BadRequest, match="more than 4096 letters"):
        Intake(topic).take(json.dumps(event(1, id="x" * 5000)).encode(), "application/cloudevents+json")


def test_what_is_posted_goes_through_it(log: hw.Log) -> None:
    topic = topic_of(log, {"order": "int64"})
    client = TestClient(make_api({"events": topic}, {}))
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "paid"}
    answers = [client.post("/topics/events/records", json={"order": 1}, headers=headers).json() for _ in range(2)]
    assert [each["repeated"] for each in answers] == [False, True]
    assert answers[0]["position"] == answers[1]["position"]
    table = pa.table({"order": [2, 3]})
    arrow = client.post("/topics/events/records", content=stream(table), headers={"content-type": STREAM})
    assert arrow.status_code == 200
    wrong = client.post("/topics/events/records", content=b"ARROW1", headers={"content-type": FILE})
    assert (wrong.status_code, "is not Arrow" in wrong.json()["detail"]) == (400, True)
    assert sorted(row["order"] for row in rows(topic)) == [1, 2, 3]


def test_an_event_has_no_producer_and_sequence(log: hw.Log) -> None:
    topic = topic_of(log, {"order": "int64"})
    with pytest.raises(BadRequest, match="an event has its own id"):
        Intake(topic).take(b"{}", "application/cloudevents+json", producer=log.begin("p"), sequence=1)


def test_what_was_seen_is_known_to_a_log_that_is_opened_again(tmp_path: Path) -> None:
    body = json.dumps(event(1)).encode()
    answers = []
    for _ in range(2):
        log = hw.open(f"file:{tmp_path / 'log'}")
        answers.append(Intake(topic_of(log, {"order": "int64"})).take(body, "application/cloudevents+json").repeated)
        log.close()
    assert answers == [False, True]

"""Appending in every form, reading and long polling; whatever is wrong is a problem that says what."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from pyarrow import ipc

from headwater.log import Position
from tests.unit.http_shop import Shop, click

ARROW = "application/vnd.apache.arrow.stream"
RECORDS = "/topics/clicks/records"


def arrow_of(rows: list[dict[str, Any]]) -> bytes:
    table = pa.Table.from_pylist(rows)
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def event(id_: str = "1", **data: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id_, "source": "/shop", "type": "click", "data": data}


def test_an_arrow_stream_is_appended(shop: Shop, client: TestClient) -> None:
    rows = [{"user_id": n, "page": "/a", "at": datetime(2026, 1, 1, tzinfo=UTC)} for n in range(50)]
    client.post(RECORDS, content=arrow_of(rows), headers={"content-type": ARROW}).raise_for_status()
    assert sorted(shop.clicks.read()["user_id"].to_pylist()) == list(range(50))


@pytest.mark.parametrize("body", [b"", b"nonsense", b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"\x00" * 40])
def test_malformed_arrow_is_a_problem_and_appends_nothing(shop: Shop, client: TestClient, body: bytes) -> None:
    answer = client.post(RECORDS, content=body, headers={"content-type": ARROW})
    assert (answer.status_code, answer.json()["title"]) == (400, "BadRequest")
    assert shop.clicks.read().num_rows == 0


def test_a_truncated_arrow_stream_is_a_problem(shop: Shop, client: TestClient) -> None:
    body = arrow_of([{"user_id": n, "page": "x" * 100} for n in range(100)])
    answer = client.post(RECORDS, content=body[: len(body) // 2], headers={"content-type": ARROW})
    assert answer.status_code == 400
    assert shop.clicks.read().num_rows == 0


def test_cloudevents_are_appended_once(shop: Shop, client: TestClient) -> None:
    structured = {"content-type": "application/cloudevents+json"}
    body = json.dumps(event("7", **click(7)))
    first = client.post(RECORDS, content=body, headers=structured).json()
    assert client.post(RECORDS, content=body, headers=structured).json()["repeated"] is True
    binary = {"ce-specversion": "1.0", "ce-id": "8", "ce-source": "/shop", "ce-type": "click"}
    client.post(RECORDS, json=click(8), headers=binary).raise_for_status()
    batch = json.dumps([event("9", **click(9)), event("10", **click(10))])
    client.post(
        RECORDS, content=batch, headers={"content-type": "application/cloudevents-batch+json"}
    ).raise_for_status()
    assert first["repeated"] is False
    assert sorted(shop.clicks.read()["user_id"].to_pylist()) == [7, 8, 9, 10]


def test_an_event_without_an_id_is_refused(client: TestClient) -> None:
    wrong = {name: value for name, value in event(**click()).items() if name != "id"}
    answer = client.post(RECORDS, content=json.dumps(wrong), headers={"content-type": "application/cloudevents+json"})
    assert answer.status_code == 400
    assert "id" in answer.json()["detail"]


def test_a_key_beside_events_changes_nothing_their_ids_count(shop: Shop, client: TestClient) -> None:
    def post(key: str, *ids: str) -> dict[str, Any]:
        events = [
            {"specversion": "1.0", "id": each, "source": "/shop", "type": "seen", "data": click()} for each in ids
        ]
        headers = {"Idempotency-Key": key, "content-type": "application/cloudevents-batch+json"}
        answer = client.post(RECORDS, content=json.dumps(events), headers=headers)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    assert [post("one", "a", "b")["repeated"] for _ in range(2)] == [False, True]
    assert post("other", "a", "b")["repeated"], "they are known by their ids, whatever the key"
    assert not post("one", "c")["repeated"]
    binary = {"Idempotency-Key": "one", "ce-specversion": "1.0", "ce-id": "d", "ce-source": "/shop", "ce-type": "seen"}
    assert [client.post(RECORDS, json=click(), headers=binary).json()["repeated"] for _ in range(2)] == [False, True]
    assert shop.clicks.read().num_rows == 4
    chosen = client.post(f"{RECORDS}?producer=me&sequence=1", json=click(), headers=binary)
    assert (chosen.status_code, chosen.json()["title"]) == (400, "BadRequest")


def test_the_same_idempotency_key_is_one_append(shop: Shop, client: TestClient) -> None:
    key = {"Idempotency-Key": "order-17"}
    first, again = (client.post(RECORDS, json=click(), headers=key).json() for _ in range(2))
    other = client.post(RECORDS, json=click(), headers={"Idempotency-Key": "order-18"}).json()
    assert (first["repeated"], again["repeated"], other["repeated"]) == (False, True, False)
    assert again["position"] == first["position"]
    assert shop.clicks.read().num_rows == 2


def test_records_are_read_page_by_page_in_every_form(shop: Shop, client: TestClient) -> None:
    shop.clicks.append([click(n) for n in range(25)])
    seen: list[int] = []
    start = "start"
    for _ in range(10):
        told = client.get(RECORDS, params={"start": start, "limit": 10}).json()
        assert len(told["records"]) <= 10
        seen += [record["user_id"] for record in told["records"]]
        start = told["position"]
    assert sorted(seen) == list(range(25))
    lines = client.get(RECORDS, headers={"accept": "application/x-ndjson"})
    assert len([json.loads(line) for line in lines.text.splitlines()]) == 25
    assert Position.parse(lines.headers["headwater-position"]) == shop.clicks.end()
    arrow = ipc.open_stream(client.get(RECORDS, headers={"accept": ARROW}).content).read_all()
    assert arrow.schema == shop.clicks.read().schema
    assert client.get(RECORDS, headers={"accept": "text/csv"}).status_code == 400


def test_a_read_begins_at_a_time_or_at_the_end(shop: Shop, client: TestClient) -> None:
    shop.clicks.append([click()])
    assert len(client.get(RECORDS, params={"start": "2020-01-01T00:00:00Z"}).json()["records"]) == 1
    assert client.get(RECORDS, params={"start": "2999-01-01"}).json()["records"] == []
    assert client.get(RECORDS, params={"start": "end"}).json()["records"] == []


def test_a_long_poll_answers_as_soon_as_a_record_comes(shop: Shop, client: TestClient) -> None:
    late = threading.Timer(0.2, shop.clicks.append, [[click(5)]])
    late.start()
    began = time.monotonic()
    told = client.get(RECORDS, params={"start": "end", "wait_s": 20}).json()
    late.join()
    assert [record["user_id"] for record in told["records"]] == [5]
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("url", "status", "title"),
    [
        ("/topics/clicks/records?start=clicks:0=99", 422, "BadPosition"),
        ("/topics/clicks/records?start=tomorrow", 422, "BadPosition"),
        ("/topics/clicks/records?limit=0", 422, "BadRequest"),
        ("/topics/clicks/records?limit=100000", 422, "BadRequest"),
        ("/topics/clicks/records?wait_s=-1", 422, "BadRequest"),
        ("/topics/nope/records", 404, "TopicNotFound"),
        ("/topics/_headwater.pipelines/records", 404, "TopicNotFound"),
        ("/topics/nope/follow", 404, "TopicNotFound"),
        ("/views/nope/changes", 404, "ViewNotFound"),
        ("/nowhere", 404, "NotFound"),
        ("/sql", 405, "MethodNotAllowed"),
    ],
)
def test_what_cannot_be_read_is_a_problem(client: TestClient, url: str, status: int, title: str) -> None:
    answer = client.get(url)
    assert (answer.status_code, answer.json()["title"]) == (status, title)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_wrong_resume_id_is_a_problem_before_anything_is_sent(client: TestClient) -> None:
    assert client.get("/views/by_page/changes", headers={"Last-Event-ID": "rubbish"}).status_code == 422
    assert client.get("/topics/clicks/follow", headers={"Last-Event-ID": "rubbish"}).status_code == 422


def test_an_unexpected_failure_is_a_problem_without_details(
    shop: Shop, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("password=hunter22")

    for way in ("append_parts", "append_each"):
        monkeypatch.setattr(shop.clicks, way, broken)
    answer = client.post(RECORDS, json=click())
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "hunter22" not in answer.text


def test_derived_topics_can_be_read_but_not_appended_to(shop: Shop, client: TestClient) -> None:
    shop.clicks.append([click()])
    shop.count()
    assert len(client.get("/topics/by_page/records").json()["records"]) == 1
    assert client.post("/topics/by_page/records", json={"page": "/x", "views": 1}).status_code == 404
    listed = {each["topic"]: each["appendable"] for each in client.get("/topics").json()}
    assert listed == {"by_page": False, "clicks": True}


def test_not_a_number_has_a_form_in_json() -> None:
    from headwater.serve.http.answers import as_json

    assert json.loads(as_json({"a": float("nan"), "b": [float("-inf")]})) == {"a": "NaN", "b": ["-Infinity"]}


def test_ready_and_health(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}


def test_a_view_is_filtered_ordered_and_asked_for_its_past(shop: Shop, client: TestClient) -> None:
    first = shop.clicks.append([click(n, f"/{n % 3}") for n in range(7)])
    shop.count()
    shop.clicks.append([click(1, "/0")])
    shop.count()
    asked = {"where": "views >= 2", "order_by": "views DESC, page", "columns": ["page", "views"], "limit": 2}
    told = client.get("/views/by_page", params=asked).json()
    assert told["rows"] == [{"page": "/0", "views": 4}, {"page": "/1", "views": 2}]
    then = client.get("/views/by_page", params={"as_of": str(first), "where": "page = '/0'"}).json()
    assert then["rows"] == [{"page": "/0", "views": 3}]


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"where": "nothing = 1"}, 422),
        ({"where": "page = (SELECT 1)"}, 422),
        ({"where": "views > 'many'"}, 422),
        ({"order_by": "nothing"}, 422),
        ({"columns": "nothing"}, 422),
        ({"key": "/", "where": "views = 1"}, 400),
        ({"as_of": "yesterday"}, 422),
    ],
)
def test_a_wrong_question_to_a_view_is_a_problem(client: TestClient, params: dict[str, str], status: int) -> None:
    answer = client.get("/views/by_page", params=params)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"

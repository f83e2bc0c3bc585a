"""Small appends over HTTP: the short way answers what the route would, and leaves the rest to it."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headwater.errors import BadRecord
from headwater.log import Topic, TopicSpec
from headwater.log.spec import Settings
from headwater.records import schema_of
from headwater.serve.access.rules import parse_rule
from headwater.serve.http import smallappends
from headwater.serve.http.limits import Limits
from headwater.serve.http.smallappends import Writer
from tests.unit.http_shop import Shop, click

SHORT, BY_ROUTE = "application/json", "application/json; charset=utf-8"
URL = "/topics/clicks/records"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """The rows of appends that took the short way."""
    found: list[list[Any]] = []
    own = Writer.append

    async def append(self: Writer, rows: list[Any]) -> Any:
        found.append(rows)
        return await own(self, rows)

    monkeypatch.setattr(smallappends.Writer, "append", append)
    return found


def post(client: TestClient, body: bytes, kind: str = SHORT, **headers: str) -> Any:
    return client.post(URL, content=body, headers={"content-type": kind, **headers})


def test_both_ways_append_and_answer_alike(shop: Shop, client: TestClient, written: list[list[Any]]) -> None:
    for body in (click(1), [click(1), click(1)], []):
        short, long = (post(client, json.dumps(body).encode(), kind) for kind in (SHORT, BY_ROUTE))
        first, second = (json.loads(answer.content) for answer in (short, long))
        assert short.status_code == long.status_code == 200
        assert list(first) == list(second)
        assert second["append"] == first["append"] + 1
        assert short.headers["content-type"] == long.headers["content-type"]
    assert len(written) == 3
    assert shop.clicks.read().num_rows == 6


@pytest.mark.parametrize(
    ("body", "short"),
    [
        (b'{"user_id": "seven"}', True),
        (b'{"colour": "red"}', True),
        (b"[7]", True),
        (b"no json", False),
        (b"", False),
        (json.dumps([click(1)] * 101 + [{"user_id": "x"}]).encode(), False),
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(
    shop: Shop, client: TestClient, written: list[list[Any]], body: bytes, short: bool
) -> None:
    answers = [post(client, body, kind) for kind in (SHORT, BY_ROUTE)]
    assert answers[0].status_code == answers[1].status_code >= 400
    assert answers[0].content == answers[1].content
    assert answers[0].headers["content-type"] == "application/problem+json"
    assert len(written) == short
    assert shop.clicks.read().num_rows == 0


def test_a_repeatable_append_is_left_to_the_route(client: TestClient, written: list[list[Any]]) -> None:
    answers = [post(client, json.dumps(click()).encode(), **{"idempotency-key": "one"}).json() for _ in range(2)]
    assert [answer["repeated"] for answer in answers] == [False, True]
    assert written == []


def test_a_body_that_comes_in_pieces_and_a_large_one_are_taken(shop: Shop, client: TestClient) -> None:
    text = json.dumps(click()).encode()
    assert post(client, iter([text[:10], text[10:]])).status_code == 200  # type: ignore[arg-type]
    large = json.dumps([click(1, "/" + "x" * smallappends.SMALL_BYTES)]).encode()
    assert post(client, large).status_code == 200
    assert shop.clicks.read().num_rows == 2


def test_nobody_appends_who_may_not(shop: Shop) -> None:
    access = shop.access
    _, let_in = access.add_token("web", [parse_rule("web", "allow", "append topic:clicks")])
    _, other = access.add_token("other", [parse_rule("other", "allow", "read topic:*")])
    client = TestClient(shop.api(access=access), raise_server_exceptions=False)
    body = json.dumps(click()).encode()
    answers = [post(client, body, authorization=f"Bearer {secret}") for secret in (let_in, other, "hw_nobody")]
    assert [answer.status_code for answer in answers] == [200, 403, 401]
    assert shop.clicks.read().num_rows == 1


def test_another_site_may_not_append_from_a_browser(shop: Shop, client: TestClient) -> None:
    answer = post(client, json.dumps(click()).encode(), origin="https://elsewhere.example")
    assert answer.json()["title"] == "Forged"
    assert shop.clicks.read().num_rows == 0


def test_small_appends_are_counted_by_their_route(client: TestClient) -> None:
    for kind in (SHORT, SHORT, BY_ROUTE):
        post(client, json.dumps(click()).encode(), kind)
    counted = re.search(
        r'http_requests_total\{method="POST",route="/topics/\{topic\}/records",status="200"\} (\S+)',
        client.get("/metrics").text,
    )
    assert counted is not None
    assert float(counted[1]) == 3


def test_appends_that_come_together_are_written_together_and_each_is_answered_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    own = Topic.append_each

    def append_each(self: Topic, several: Any) -> Any:
        writes.append(len(several))
        return own(self, several)

    monkeypatch.setattr(Topic, "append_each", append_each)

    async def run() -> list[Any]:
        writer = Writer(shop.clicks)
        rows: list[list[Any]] = [[click(number)] for number in range(20)]
        rows[7] = [{"user_id": "seven"}]
        return await asyncio.gather(*map(writer.append, rows), return_exceptions=True)

    answers = asyncio.run(run())
    assert writes == [20]
    assert isinstance(answers.pop(7), BadRecord)
    assert [answer.number for answer in answers] == list(range(answers[0].number, answers[0].number + 19))
    assert sorted(shop.clicks.read()["user_id"].to_pylist()) == [number for number in range(20) if number != 7]


def test_a_topic_with_a_bound_takes_appends_of_their_own(shop: Shop) -> None:
    spec = TopicSpec(
        "ring", schema_of({"n": "int64"}), partitions=1, settings=Settings(most_rows=2, when_full="drop_oldest")
    )
    ring = Topic(shop.log, shop.log.create(spec))

    async def run() -> None:
        writer = Writer(ring)
        for number in range(5):
            await writer.append([{"n": number}])

    asyncio.run(run())
    assert ring.read()["n"].to_pylist() == [3, 4]


@pytest.mark.parametrize("kind", [SHORT, BY_ROUTE])
def test_a_body_that_is_too_large_is_told_as_such_on_both_ways(shop: Shop, kind: str) -> None:
    client = TestClient(shop.api(limits=Limits(body_bytes=60)), raise_server_exceptions=False)
    answer = post(client, json.dumps([click(1)] * 10).encode(), kind)
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")

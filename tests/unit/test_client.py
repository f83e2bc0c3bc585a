"""The client against a real server: the same calls as in-process use, the same errors, plain and async."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.client import steps
from headwater.client.steps import Answer, Call, Lost, Rest
from headwater.errors import (
    BadCondition,
    BadRecord,
    LeaseLost,
    NotCovered,
    QueryRefused,
    ServerFailed,
    TopicNotFound,
    Unreachable,
)
from headwater.serve.server import Server
from tests.unit.http_shop import Shop, click

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("shop") / "log")
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(shop: Shop) -> Iterator[Server]:
    running = shop.server()
    yield running
    running.stop()


@pytest.fixture
def client(server: Server) -> Iterator[hw.Client]:
    with hw.Client(server.url) as made:
        yield made


def test_rows_of_any_kind_are_appended_and_read_back(shop: Shop, client: hw.Client) -> None:
    clicks = client.topic("clicks")
    start = shop.clicks.end()
    clicks.append([click(1)])
    clicks.append('{"user_id": 2, "page": "/", "at": "2026-01-01"}\n')
    position = clicks.append(shop.clicks.read(start).select(["user_id", "page", "at"]))
    assert position == shop.clicks.end()
    assert clicks.read(start).equals(shop.clicks.read(start))
    assert sorted(clicks.read(start)["user_id"].to_pylist()) == [1, 1, 2, 2]
    page = clicks.page(start, limit=1)
    assert page.records.num_rows == 1
    assert client.topics()[-1]["topic"] == "clicks"


def test_one_reads_ones_own_writes(shop: Shop, client: hw.Client) -> None:
    token = client.topic("clicks").append([click(7, "/mine"), click(8, "/mine")])
    view = client.view("by_page")
    with pytest.raises(NotCovered) as refused:
        view.get("/mine", after=token, timeout_s=0.05)
    assert refused.value.view == "by_page"
    shop.count()
    assert view.get("/mine", after=token) == {"page": "/mine", "views": 2}
    assert view.get("/none") is None
    assert view.position().covers(token)
    assert view.read(limit=1).num_rows == 1
    assert view.read().equals(shop.view.read())
    many = {"where": "views >= 2", "order_by": ["views DESC", "page"], "columns": ["page"]}
    assert view.read(**many).equals(shop.view.read(**many))
    with pytest.raises(BadCondition):
        view.read(where="nothing = 1")


def test_errors_are_the_servers_own(client: hw.Client) -> None:
    with pytest.raises(TopicNotFound, match="there is no topic 'nope'") as missing:
        client.topic("nope").append([{}])
    assert missing.value.topic == "nope"
    with pytest.raises(BadRecord) as bad:
        client.topic("clicks").append([click(), {"user_id": "x"}])
    assert (bad.value.row, bad.value.column) == (1, "user_id")
    with pytest.raises(QueryRefused):
        client.sql("DROP TABLE clicks")


def test_a_query_is_answered_in_arrow(client: hw.Client) -> None:
    answer = client.sql("SELECT 1 AS one, DATE '2026-01-31' AS day")
    assert answer.schema.field("day").type == pa.date32()


def test_a_queue_is_worked_off(shop: Shop, client: hw.Client) -> None:
    queue = client.queue("work")
    queue.create("clicks", start="end")
    client.topic("clicks").append([click(41), click(42)])
    first, second = queue.take(2, wait_s=5)
    assert {first.record["user_id"], second.record["user_id"]} == {41, 42}
    later = queue.extend(first, lease_s=3600)
    assert later.until > first.until
    queue.acknowledge(later)
    queue.reject(second)
    with pytest.raises(LeaseLost):
        queue.acknowledge(first)
    assert queue.take() == []


def test_a_group_is_read_and_goes_on_where_it_committed(shop: Shop, client: hw.Client) -> None:
    client.topic("clicks").append([click(51)])
    with client.consumer("readers", "clicks") as consumer:
        first = consumer.poll(max_rows=1)
        assert first is not None
        consumer.commit()
        rest = []
        while (polled := consumer.poll(timeout_s=0)) is not None:
            rest.append(polled.num_rows)
    with client.consumer("readers", "clicks") as other:
        again = other.poll()
        assert again is not None
        other.commit()
    assert first.num_rows + sum(rest) == shop.clicks.read().num_rows
    assert again.num_rows <= sum(rest)
    with client.consumer("readers", "clicks") as third:
        while (polled := third.poll(timeout_s=0)) is not None:
            third.commit()
        assert third.poll(timeout_s=0) is None


def test_the_async_client_has_the_same_calls(shop: Shop, server: Server) -> None:
    async def use() -> None:
        async with hw.AsyncClient(server.url) as client:
            token = await client.topic("clicks").append([click(61, "/async")])
            shop.count()
            assert await client.view("by_page").get("/async", after=token) == {"page": "/async", "views": 1}
            with pytest.raises(TopicNotFound):
                await client.topic("nope").read()
            assert (await client.sql("SELECT 1 AS one")).to_pylist() == [{"one": 1}]
            queue = client.queue("async")
            await queue.create("clicks")
            (taken,) = await queue.take()
            await queue.release(taken)
            async with client.consumer("async", "clicks") as consumer:
                assert await consumer.poll() is not None
                await consumer.commit()

    asyncio.run(use())


def test_both_clients_have_the_same_calls() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    from headwater.client import asynchronous, synchronous

    assert calls(hw.Client) == calls(hw.AsyncClient)
    for name in ("RemoteTopic", "RemoteView", "RemoteQueue", "RemoteConsumer"):
        assert calls(getattr(synchronous, name)) == calls(getattr(asynchronous, f"Async{name}"))


# --- steps, without a server ---


def test_a_call_is_tried_again_while_no_answer_comes_and_then_given_up() -> None:
    asked = steps.asked(Call("GET", "/x"))
    rests = []
    step = next(asked)
    for _ in range(len(steps.RESTS_S)):
        rest = asked.send(Lost("http://here", "refused"))
        assert isinstance(rest, Rest)
        rests.append(rest.seconds)
        step = asked.send(None)
        assert isinstance(step, Call)
    with pytest.raises(Unreachable, match="http://here does not answer: refused"):
        asked.send(Lost("http://here", "refused"))
    assert tuple(rests) == steps.RESTS_S


def test_what_must_not_be_repeated_is_not() -> None:
    asked = steps.asked(Call("POST", "/x", again=False))
    next(asked)
    with pytest.raises(Unreachable):
        asked.send(Lost("http://here", "cut"))


def test_a_busy_server_is_asked_again() -> None:
    asked = steps.asked(Call("GET", "/x"))
    next(asked)
    assert isinstance(asked.send(Answer(503, {}, b"{}")), Rest)
    asked.send(None)
    with pytest.raises(StopIteration) as done:
        asked.send(Answer(200, {}, b"7"))
    assert done.value.value.json() == 7


@pytest.mark.parametrize("content", [b"<html>bad gateway</html>", b'{"title": "Client", "detail": "x"}', b"[]"])
def test_an_answer_that_names_no_error_is_still_one(content: bytes) -> None:
    error = steps.error_of(Answer(502, {}, content))
    assert isinstance(error, ServerFailed)
    assert error.status == 502


def test_an_append_is_repeated_under_the_same_key(shop: Shop) -> None:
    from headwater.client import topics

    appending = topics.append("clicks", [click()])
    first = next(appending)
    appending.send(Lost("http://here", "cut"))
    second = appending.send(None)
    assert isinstance(first, Call)
    assert first == second
    assert first.headers["Idempotency-Key"]


def test_nobody_there_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(steps, "RESTS_S", ())
    with hw.Client("http://127.0.0.1:9") as client, pytest.raises(Unreachable, match="headwater serve"):
        client.topic("clicks").read()


def test_the_program_in_the_document_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "http.md").read_text(), re.DOTALL)
    exec(program, {"url": server.url})
    assert "page" in capsys.readouterr().out

"""Rows by their key over HTTP: the short way answers what the route would, and leaves the rest to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from headwater.log import Position
from headwater.log.coverage import Made
from headwater.log.position import AppendNumber
from headwater.serve.access.rules import parse_rule
from headwater.serve.http import pointreads
from headwater.serve.store import Mark
from headwater.serve.stores.sqlite import SqliteStore
from tests.unit.http_shop import COLUMNS, OneVersion, Shop, click

BY_ROUTE = "&limit=1000"
"""Says nothing that is not so anyway, and leads to the route."""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "log")
    made.clicks.append([click(1, "/a"), click(2, "/a"), click(3, "/b & c")])
    made.count()
    yield made
    made.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, shop: Shop) -> list[Any]:
    """The keys that were asked for on the short way."""
    found: list[Any] = []
    own = shop.view.get_at_once

    def get_at_once(key: Any) -> Any:
        found.append(key)
        return own(key)

    monkeypatch.setattr(shop.view, "get_at_once", get_at_once)
    return found


@pytest.mark.parametrize("key", ["/a", "%2Fa", "/b+%26+c", "", "nowhere", "/a&key=/b", "%ff"])
def test_both_ways_give_the_same_answer(shop: Shop, asked: list[Any], key: str) -> None:
    client = TestClient(shop.api(), raise_server_exceptions=False)
    short, long = client.get(f"/views/by_page?key={key}"), client.get(f"/views/by_page?key={key}{BY_ROUTE}")
    assert len(asked) == 1
    assert (short.status_code, short.content) == (long.status_code, long.content)
    assert short.headers == long.headers


def test_what_is_not_plain_is_left_to_the_route(shop: Shop, asked: list[Any]) -> None:
    client = TestClient(shop.api(), raise_server_exceptions=False)
    token = str(shop.clicks.end())
    assert client.get(f"/views/by_page?key=/a&after={token}").json()["rows"] == [{"page": "/a", "views": 2}]
    assert client.get("/views/by_page?key=/a", headers={"accept": "application/x-ndjson"}).json()["views"] == 2
    assert client.get("/views/nowhere?key=/a").json()["title"] == "ViewNotFound"
    assert client.head("/views/by_page?key=/a").status_code == 405
    assert client.get("/views/by_page?key=/a&colour=red").status_code == 200
    assert asked == []


def test_nobody_is_let_in_who_may_not_read_the_view(shop: Shop) -> None:
    access = shop.access
    _, let_in = access.add_token("reader", [parse_rule("reader", "allow", "read view:by_page")])
    _, other = access.add_token("other", [parse_rule("other", "allow", "read topic:*")])
    client = TestClient(shop.api(access=access), raise_server_exceptions=False)
    answers = [
        client.get("/views/by_page?key=/a", headers={"authorization": f"Bearer {secret}"} if secret else {})
        for secret in (let_in, other, "hw_nobody", "")
    ]
    assert [answer.status_code for answer in answers] == [200, 403, 401, 401]


def test_point_reads_are_counted_by_their_route(shop: Shop) -> None:
    client = TestClient(shop.api(), raise_server_exceptions=False)
    for _ in range(3):
        client.get("/views/by_page?key=/a")
    client.get(f"/views/by_page?key=/a{BY_ROUTE}")
    counted = re.search(
        r'http_requests_total\{method="GET",route="/views/\{view\}",status="200"\} (\S+)', client.get("/metrics").text
    )
    assert counted is not None
    assert float(counted[1]) == 4


def test_after_a_slow_read_others_go_to_threads_for_a_while(
    shop: Shop, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            self.now += pointreads.SLOW_S * 2  # so long does everything take
            return self.now

    monkeypatch.setattr(pointreads, "time", clock := Clock())
    client = TestClient(shop.api(), raise_server_exceptions=False)
    for _ in range(3):
        assert client.get("/views/by_page?key=/a").json()["rows"] == [{"page": "/a", "views": 2}]
    assert len(asked) == 1
    clock.now += pointreads.A_WHILE_S
    client.get("/views/by_page?key=/a")
    assert len(asked) == 2


class Switched(OneVersion):
    """The current version is the one that it is told."""

    def current(self, view: str) -> Made | None:
        return self.made


def test_a_switched_view_is_answered_from_its_new_version_with_no_stale_row(shop: Shop, tmp_path: Path) -> None:
    lookup = Switched()
    newer = SqliteStore(tmp_path / "newer.db", COLUMNS, ("page",))
    old = shop.view.store
    assert shop.view._source is not None
    shop.view._source = replace(shop.view._source, lookup=lookup, open=lambda made: newer if made.version == 2 else old)
    client = TestClient(shop.api(), raise_server_exceptions=False)

    def views() -> int:
        return int(client.get("/views/by_page?key=/a").json()["rows"][0]["views"])

    assert views() == 2
    lookup.made = replace(lookup.made, version=2, topic="by_page.v2")
    assert views() == 2  # the new version does not cover what was read already
    rows = pa.table({"page": ["/a"], "views": [200], "_weight": [1]})
    newer.apply(rows, Mark(AppendNumber(9), Position(), shop.clicks.end()))
    assert shop.view.get_at_once(["/a"]) is None
    assert views() == 200
    assert shop.view.get_at_once(["/a"]) is not None

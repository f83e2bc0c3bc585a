from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

import headwater as hw
from headwater.console import mount_pages
from headwater.errors import UsageError
from headwater.log import Position
from headwater.log.position import AppendNumber
from headwater.serve.http import Limits, make_api
from headwater.serve.server import Server
from headwater.serve.store import Mark

ROW = {"page": "/a", "views": 3}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    with hw.App("shop", log=f"file:{tmp_path / 'log'}") as made:
        made.topic("clicks", {"user_id": "int64", "page": "string", "at": "timestamp"}, key="user_id", time="at")
        view = made.view("by_page", sql="SELECT page, count(*) AS views FROM clicks GROUP BY page")
        covered = Mark(AppendNumber(1), Position(), Position.of({"clicks": {0: 5}}))
        view.store.apply(pa.table({"page": ["/a"], "views": [3], "_weight": [1]}), covered)
        yield made


@pytest.fixture
def client(app: hw.App) -> TestClient:
    api = make_api(app.topics, app.views, log=app.log)
    mount_pages(api)
    return TestClient(api, raise_server_exceptions=False)


def click(user_id: int = 1) -> dict[str, Any]:
    return {"user_id": user_id, "page": "/", "at": "2026-01-01T00:00:00Z"}


def test_one_record_an_array_and_lines_are_appended(app: hw.App, client: TestClient) -> None:
    url = "/topics/clicks/records"
    first = client.post(url, json=click())
    assert first.status_code == 200
    assert app.topics["clicks"].end() == Position.parse(first.json()["position"])
    client.post(url, json=[click(2), click(3)]).raise_for_status()
    lines = "\n".join(json.dumps(click(n)) for n in (4, 5)) + "\n\n"
    client.post(url, content=lines, headers={"content-type": "application/x-ndjson"}).raise_for_status()
    assert sorted(app.topics["clicks"].read()["user_id"].to_pylist()) == [1, 2, 3, 4, 5]


def test_a_retried_append_counts_once(app: hw.App, client: TestClient) -> None:
    url = "/topics/clicks/records?producer=web&sequence=7"
    first, again = client.post(url, json=click()).json(), client.post(url, json=click()).json()
    assert again == {**first, "repeated": True}
    assert app.topics["clicks"].read().num_rows == 1


@pytest.mark.parametrize(
    ("url", "body", "status", "told"),
    [
        ("/topics/clicks/records", b"{not json", 400, "the body is not JSON"),
        ("/topics/clicks/records", b"[" * 100_000, 400, "the body is not JSON"),
        ("/topics/clicks/records", b"7", 422, "a record is a mapping, got int"),
        ("/topics/clicks/records", b'{"user_id": "x"}', 422, "column 'user_id': 'x' is not int64"),
        ("/topics/clicks/records", b'{"user_id": 1}', 422, "column 'at': null or missing"),
        ("/topics/nope/records", b"{}", 404, "there is no topic 'nope'. Topics here: clicks"),
        ("/topics/by_page/records", b"{}", 404, "there is no topic 'by_page'"),
        ("/topics/clicks/records?producer=p", b"{}", 400, "producer and sequence go together"),
        ("/topics/clicks/records?producer=p&sequence=-1", b"{}", 422, "sequence"),
    ],
)
def test_a_bad_append_is_a_problem_that_says_what_and_appends_nothing(
    app: hw.App, client: TestClient, url: str, body: bytes, status: int, told: str
) -> None:
    answer = client.post(url, content=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert told in answer.json()["detail"]
    assert app.topics["clicks"].read().num_rows == 0


def test_a_body_past_the_limit_is_refused(app: hw.App) -> None:
    small = TestClient(make_api(app.topics, app.views, limits=Limits(body_bytes=1000)))
    answer = small.post("/topics/clicks/records", content=b" " * 2000)
    assert (answer.status_code, answer.json()["title"]) == (413, "TooLarge")


def test_a_strange_content_type_is_refused(client: TestClient) -> None:
    answer = client.post("/topics/clicks/records", content=b"x", headers={"content-type": "text/csv"})
    assert answer.status_code == 400
    assert "cannot be sent as text/csv" in answer.json()["detail"]


def test_a_view_is_read_with_what_it_covers(client: TestClient) -> None:
    assert client.get("/views/by_page").json() == {"view": "by_page", "position": "clicks:0=5", "rows": [ROW]}
    assert client.get("/views/by_page?key=/a").json()["rows"] == [ROW]
    assert client.get("/views/by_page?key=/none").json()["rows"] == []
    assert [view["view"] for view in client.get("/views").json()] == ["by_page"]


def test_reading_after_a_position_waits_until_it_is_covered_or_says_so(client: TestClient) -> None:
    assert client.get("/views/by_page", params={"after": "clicks:0=5"}).status_code == 200
    late = client.get("/views/by_page", params={"after": "clicks:0=6", "timeout_s": 0.05})
    assert late.status_code == 504
    assert "covers clicks:0=5, not yet clicks:0=6" in late.json()["detail"]


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("/views/nope", 404),
        ("/views/by_page?after=rubbish", 422),
        ("/views/by_page?after=other:0=1", 422),
        ("/views/by_page?limit=0", 422),
        ("/views/by_page?key=a&key=b", 422),
    ],
)
def test_a_bad_read_is_a_problem(client: TestClient, url: str, status: int) -> None:
    answer = client.get(url)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_page_and_its_parts_come_from_here_alone(client: TestClient) -> None:
    page = client.get("/")
    assert page.url.path == "/console/"
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "//" not in page.text.replace("http://www.w3.org", "")
    for part in ("console.js", "console.css"):
        assert part in page.text
        assert client.get(f"/console/{part}").status_code == 200


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "192.0.2.1:80", "example.com:80"])
def test_another_address_than_loopback_is_refused_without_authentication(client: TestClient, address: str) -> None:
    with pytest.raises(UsageError, match="is not a loopback address"):
        Server(client.app, address)  # type: ignore[arg-type]


def test_a_taken_port_is_told(client: TestClient) -> None:
    first = Server(client.app, "127.0.0.1:0")  # type: ignore[arg-type]
    port = first.url.rpartition(":")[2]
    with pytest.raises(UsageError, match="cannot listen on"):
        Server(client.app, f"127.0.0.1:{port}")  # type: ignore[arg-type]
    first.stop()


def test_answers_do_not_wait_to_be_acknowledged() -> None:
    """Each is sent in two parts: with Nagle's algorithm the second one would wait for the client, some 40 ms."""
    server = Server(make_api({}, {}), "127.0.0.1:0")
    server.start()
    try:
        host, port = server.url.removeprefix("http://").split(":")
        connection = HTTPConnection(host, int(port))
        took = []
        for _ in range(10):
            began = time.monotonic()
            connection.request("GET", "/health")
            connection.getresponse().read()
            took.append(time.monotonic() - began)
        connection.close()
    finally:
        server.stop()
    assert min(took[1:]) < 0.03

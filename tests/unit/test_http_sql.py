"""Questions in SQL: answered over what is there, refused when they write, read files, or never end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from headwater.log import Topic, TopicSpec
from headwater.records import schema_of
from headwater.serve.http import Limits
from tests.unit.http_shop import Shop, click


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("shop") / "log")
    made.clicks.append([click(n, f"/{n % 3}") for n in range(30)])
    made.count()
    made.clicks.append([click(99, "/new")])
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(shop: Shop) -> TestClient:
    return TestClient(shop.api(limits=Limits(sql_s=1.0)), raise_server_exceptions=False)


def ask(client: TestClient, sql: str, **more: Any) -> Any:
    return client.post("/sql", json={"sql": sql, **more})


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT count(*) AS n FROM clicks", [{"n": 31}]),
        ("SELECT page, views FROM by_page ORDER BY page LIMIT 1", [{"page": "/0", "views": 10}]),
        ("SELECT count(*) AS n FROM clicks JOIN by_page USING (page)", [{"n": 30}]),
        (
            "WITH a AS (SELECT * FROM clicks) SELECT count(*) AS n FROM a, a AS b WHERE a.user_id = b.user_id",
            [{"n": 31}],
        ),
        ("SELECT sum(range) AS s FROM range(5)", [{"s": 10}]),
        ("SELECT clicks.page FROM clicks WHERE clicks.user_id = 99", [{"page": "/new"}]),
        ('SELECT "page" FROM "clicks" WHERE _offset = 0 AND user_id < 0', []),
        ("SELECT 1 AS one UNION ALL SELECT 2 ORDER BY one", [{"one": 1}, {"one": 2}]),
        ("FROM by_page SELECT count(*) AS n", [{"n": 3}]),
    ],
)
def test_a_select_is_answered(client: TestClient, sql: str, rows: list[Any]) -> None:
    assert ask(client, sql).json() == {"truncated": False, "rows": rows}


def test_the_rows_of_tables_are_what_they_are_now(shop: Shop, client: TestClient) -> None:
    columns = schema_of({"id": "int64", "name": "string"})
    users = Topic(shop.log, shop.log.create(TopicSpec("users", columns, key=("id",), kind="table", upsert=True)))
    users.upsert([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    users.upsert([{"id": 1, "name": "Ada L."}])
    users.delete([{"id": 2}])
    assert ask(client, "SELECT * FROM users").json()["rows"] == [{"id": 1, "name": "Ada L."}]
    stock = Topic(shop.log, shop.log.create(TopicSpec("shop.stock", columns, key=("id",), kind="table")))
    stock.append([{"id": 1, "name": "a"}, {"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    stock.append([{"id": 2, "name": "b", "_weight": -1}])
    assert ask(client, "SELECT name FROM shop.stock").json()["rows"] == [{"name": "a"}, {"name": "a"}]


def test_more_rows_than_asked_for_are_cut_and_told(client: TestClient) -> None:
    told = ask(client, "SELECT * FROM clicks", limit=7).json()
    assert (len(told["rows"]), told["truncated"]) == (7, True)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO clicks VALUES (1)",
        "CREATE TABLE t AS SELECT 1",
        "DROP TABLE clicks",
        "COPY clicks TO '/tmp/x.csv'",
        "ATTACH '/tmp/x.db'",
        "PRAGMA database_list",
        "SET threads = 4",
        "INSTALL httpfs",
        "CALL pragma_version()",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM _headwater.pipelines",
        "SELECT * FROM nothing_here",
        "SELECT nothing_here FROM clicks",
        "SELECT (SELECT content FROM read_text('/etc/passwd'))",
        "SELECT FROM WHERE",
        "",
        "hello",
        "SELECT " + "(" * 3000 + "1" + ")" * 3000,
    ],
)
def test_anything_else_is_refused_and_changes_nothing(shop: Shop, client: TestClient, sql: str) -> None:
    answer = ask(client, sql)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "root:" not in answer.text
    assert shop.clicks.read().num_rows == 31


def test_a_query_that_never_ends_is_stopped(client: TestClient) -> None:
    began = time.monotonic()
    answer = ask(client, "SELECT count(*) FROM range(10000000000000) a WHERE a.range % 7 = 9", timeout_s=60)
    assert (answer.status_code, answer.json()["title"]) == (504, "QueryStopped")
    assert time.monotonic() - began < 20


def test_a_query_that_takes_too_much_memory_is_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.serve.sql.MEMORY", "20MB")
    answer = ask(client, "SELECT list(range::VARCHAR || range) FROM range(100000000)")
    assert (answer.status_code, answer.json()["title"]) == (422, "QueryRefused")
    assert "it takes more than 20MB of memory" in answer.json()["detail"]


def test_a_topic_larger_than_a_query_may_read_is_refused(shop: Shop) -> None:
    small = TestClient(shop.api(limits=Limits(sql_read_rows=10)))
    answer = ask(small, "SELECT count(*) FROM clicks")
    assert answer.status_code == 422
    assert "31 records" in answer.json()["detail"]

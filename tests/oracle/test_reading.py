"""Clients of a running app: 100 that read their own writes, and snapshots of views that must agree."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import headwater as hw
from headwater.process import session as sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CLIENTS = 100
BY_USER = "SELECT user_id, count(*) AS n, sum(amount) AS total FROM clicks GROUP BY user_id"
BY_PAGE = "SELECT page, count(*) AS n, sum(amount) AS total FROM clicks GROUP BY page"
BY_COUNT = "SELECT n, count(*) AS users FROM by_user GROUP BY n"


def declared(folder: Path) -> hw.App:
    app = hw.App("shop", log=f"file:{folder}")
    app.topic("clicks", {"user_id": "int64", "page": "string", "amount": "int64"}, key="user_id")
    app.topic("notes", {"text": "string"})
    app.view("by_user", sql=BY_USER)
    app.view("by_page", sql=BY_PAGE)
    app.view("by_count", sql=BY_COUNT)
    return app


def click(user: int, number: int) -> dict[str, Any]:
    return {"user_id": user, "page": f"/{(user + number) % 7}", "amount": number}


def test_clients_of_a_running_app(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark runs in the test's own thread; its clients, with an app object of their own, in others."""
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(sessions, "spark_session", lambda *given, **named: spark)
    with declared(tmp_path / "data") as running, declared(tmp_path / "data") as client:

        def use() -> None:
            try:
                first = client.append("clicks", [{"user_id": 0, "page": "/", "amount": 1}])
                client.views["by_count"].wait(first, timeout_s=300)
                a_hundred_clients_read_what_they_wrote(client)
                an_append_that_waits_is_seen_by_another_process(client)
                snapshots_under_load_are_never_a_mixture(client)
            finally:
                running.stop()

        with ThreadPoolExecutor(1) as pool:
            used = pool.submit(use)
            running.run()
            used.result()


def a_hundred_clients_read_what_they_wrote(app: hw.App) -> None:
    stale: list[str] = []

    def client(user: int) -> None:
        for number in range(1, 3):
            token = app.topics["clicks"].append([click(user, number)])
            row = app.views["by_user"].get(user, after=token, timeout_s=120)
            if row is None or row["n"] < number:
                stale.append(f"user {user} wrote {number} clicks and read {row}")

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(1, CLIENTS + 1)))
    assert stale == []
    rows = sorted(tuple(row.values()) for row in app.views["by_user"].read().to_pylist())
    clicks = app.topics["clicks"].read()  # noqa: F841
    assert rows == sorted(duckdb.sql(BY_USER).fetchall())


def an_append_that_waits_is_seen_by_another_process(app: hw.App) -> None:
    written = {"clicks": [click(777, 1), click(777, 2)], "notes": [{"text": "two clicks"}]}
    token = app.append(written, wait_for=["by_user", "by_page", "by_count"], timeout_s=120)
    assert set(token.topics) == {"clicks", "notes"}
    asked = f"""
import headwater as hw
with hw.App("shop", log={app.log.url!r}) as app:
    app.topic("clicks", {{"user_id": "int64", "page": "string", "amount": "int64"}}, key="user_id")
    view = app.view("by_user", sql={BY_USER!r})
    above = app.view("by_count", sql="SELECT n, count(*) AS users FROM by_user GROUP BY n")
    token = hw.Position.parse({str(token)!r})
    print(view.get(777)["n"], above.covers(token), view.freshness.waiting)
"""
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["2", "True", "0"]


def snapshots_under_load_are_never_a_mixture(app: hw.App) -> None:
    ended = threading.Event()

    def load(user: int) -> None:
        number = 0
        while not ended.wait(0.01):
            number += 1
            app.append("clicks", [click(user, number), click(user + 50, number)])

    threads = [threading.Thread(target=load, args=(user,)) for user in range(3)]
    for thread in threads:
        thread.start()
    try:
        told = [app.snapshot(["by_user", "by_page", "by_count"], timeout_s=120) for _ in range(4)]
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert len({moment.number for moment in told}) == 4
    topic = app.topics["clicks"]
    for moment in told:
        clicks = topic.read(end=moment.position)
        for name, sql in (("by_user", BY_USER), ("by_page", BY_PAGE)):
            rows = sorted(tuple(row.values()) for row in moment[name].to_pylist())
            assert rows == sorted(duckdb.sql(sql).fetchall()), name
        by_user = moment["by_user"]
        assert by_user.num_rows <= clicks.num_rows
        rows = sorted(tuple(row.values()) for row in moment["by_count"].to_pylist())
        assert rows == sorted(duckdb.sql(BY_COUNT).fetchall()), "the view on a view is at the same moment"

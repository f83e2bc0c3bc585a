"""Captures of an app, without Spark; with it: tests/e2e/test_captured.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import BadCapture, UsageError
from tests.capture.conftest import Database


@pytest.mark.postgres
def test_an_app_that_only_captures_needs_no_spark(database: Database, tmp_path: Path) -> None:
    database.run("CREATE TABLE users (id int PRIMARY KEY)", "INSERT INTO users VALUES (1)")
    with hw.App(database.name, log=f"file:{tmp_path / 'app'}") as app:
        topics = app.capture(database.url, tables={"users": "people"})
        app.run(until="caught-up")
        assert topics["users"].name == "people"
        assert topics["users"].read().num_rows == 1
        with pytest.raises(UsageError, match="declared twice"):
            app.capture(database.url, tables=["users"])
        with pytest.raises(UsageError, match="'people' is declared twice"):
            app.capture(database.url, tables={"users": "people"}, name="other")


def test_what_cannot_be_captured_is_refused_when_it_is_declared(tmp_path: Path) -> None:
    with hw.App("shop", log=f"file:{tmp_path / 'app'}") as app:
        with pytest.raises(BadCapture, match="no database that can be captured"):
            app.capture("oracle://somewhere/shop", tables=["users"])
        with pytest.raises(BadCapture, match="has no tables"):
            app.capture("postgresql:///shop", tables=[])
        with pytest.raises(UsageError, match="captures nothing"):
            app.run(only="captures")

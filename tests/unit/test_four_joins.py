"""The four joins of examples/joins.py, each through a worked example, change by change."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.testing import PlanBench

EXAMPLE = Path(__file__).parents[2] / "examples" / "joins.py"


def at(minute: int) -> datetime:
    return datetime(2026, 3, 1, 12, minute, tzinfo=UTC)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[hw.App]:
    monkeypatch.setenv("JOINS_LOG", f"file:{tmp_path}")
    spec = importlib.util.spec_from_file_location("joins_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.app
    module.app.close()


class Watched:
    """A view of the example, told changes topic by topic; answers what changed in it."""

    def __init__(self, app: hw.App, view: str) -> None:
        self._app = app
        self._bench = PlanBench(app.plan(view))

    def tell(self, topic: str, *rows: tuple[Any, ...]) -> set[tuple[Any, ...]]:
        """Rows in the order of the topic's columns; of a table with the weight last."""
        stored = self._app.topics[topic].spec.stored
        table = pa.Table.from_pylist([dict(zip(stored.names, row, strict=True)) for row in rows], stored)
        return {tuple(row.values()) for row in self._bench.push({topic: table}).to_pylist()}


def test_stream_and_stream_a_click_belongs_to_the_searches_of_the_ten_minutes_before_it(app: hw.App) -> None:
    found = Watched(app, "found")
    assert found.tell("searches", ("s1", "spark", at(0)), ("s2", "duck", at(0))) == set()
    assert found.tell("clicks", ("s1", 1, "/a", at(5))) == {("s1", "spark", "/a", at(5), 1)}
    assert found.tell("clicks", ("s1", 1, "/b", at(11)), ("s3", 1, "/c", at(1))) == set(), "too late; never searched"
    assert found.tell("searches", ("s1", "sql", at(4))) == {
        ("s1", "sql", "/a", at(5), 1),
        ("s1", "sql", "/b", at(11), 1),
    }, "a search that arrives after its clicks"


def test_stream_and_table_when_someone_moves_their_clicks_move_along(app: hw.App) -> None:
    by_country = Watched(app, "clicks_by_country")
    assert by_country.tell("clicks", ("s", 1, "/a", at(0)), ("s", 2, "/a", at(0)), ("s", 1, "/b", at(1))) == set()
    assert by_country.tell("users", (1, "de", 1), (2, "de", 1)) == {("de", 3, 2, 1)}
    assert by_country.tell("users", (1, "de", -1), (1, "fr", 1)) == {
        ("de", 3, 2, -1),
        ("de", 1, 1, 1),
        ("fr", 2, 1, 1),
    }


def test_table_and_table_home_timelines_follow_posts_and_follows(app: hw.App) -> None:
    timelines = Watched(app, "timelines")
    assert timelines.tell("posts", (10, 7, "hello", 1)) == set()
    assert timelines.tell("follows", (1, 7, 1), (2, 7, 1)) == {(1, 10, 7, "hello", 1), (2, 10, 7, "hello", 1)}
    assert timelines.tell("posts", (11, 7, "again", 1)) == {(1, 11, 7, "again", 1), (2, 11, 7, "again", 1)}
    assert timelines.tell("follows", (1, 7, -1)) == {(1, 10, 7, "hello", -1), (1, 11, 7, "again", -1)}, "unfollow"
    assert timelines.tell("posts", (10, 7, "hello", -1)) == {(2, 10, 7, "hello", -1)}, "delete"


def test_time_dependent_an_order_has_the_rate_of_its_time_also_if_that_becomes_known_later(app: hw.App) -> None:
    taxed = Watched(app, "taxed")
    assert taxed.tell("rates", ("de", 19, at(0), 1)) == set()
    assert taxed.tell("orders", (1, "de", 200, at(5)), (2, "de", 200, at(25)), (3, "fr", 100, at(1))) == {
        (1, "de", 200, 19, 38.0, 1),
        (2, "de", 200, 19, 38.0, 1),
        (3, "fr", 100, None, None, 1),
    }
    assert taxed.tell("rates", ("de", 19, at(0), -1), ("de", 16, at(20), 1)) == {
        (2, "de", 200, 19, 38.0, -1),
        (2, "de", 200, 16, 32.0, 1),
    }, "the order of minute 5 keeps the rate that was valid then"
    assert taxed.tell("orders", (4, "de", 100, at(6))) == {(4, "de", 100, 19, 19.0, 1)}

"""A view that changes: refused, built beside the old one, switched, switched back; each version against DuckDB."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import headwater as hw
from headwater.errors import CheckpointLost, NotCurrent, PlanChanged
from headwater.log import Settings
from headwater.process import session as sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # apps that start one after the other

OLD = "SELECT page, count(*) AS n FROM clicks GROUP BY page"
NEW = "SELECT user_id, count(*) AS n, count(DISTINCT page) AS pages FROM clicks GROUP BY user_id"


@pytest.fixture(autouse=True)
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apps start and stop Spark; here all of them share the suite's."""
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(sessions, "spark_session", lambda *given, **named: spark)


class Shop:
    """The same app as it is deployed with one code and another, over one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self._chance = random.Random(7)

    @contextmanager
    def code(self, sql: str, settings: Settings | None = None) -> Iterator[hw.App]:
        with hw.App("shop", log=f"file:{self.folder}") as app:
            app.topic("clicks", {"user_id": "int64", "page": "string"}, key="user_id", settings=settings)
            app.view("counts", sql=sql)
            yield app

    def some_clicks(self, app: hw.App, count: int) -> None:
        rows = [{"user_id": self._chance.randrange(9), "page": f"/{self._chance.randrange(5)}"} for _ in range(count)]
        app.topics["clicks"].append(rows)

    def run(self, app: hw.App) -> None:
        app.run(until="caught-up")


def served(app: hw.App) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in app.views["counts"].read().to_pylist())


def expected(app: hw.App, sql: str) -> list[tuple[Any, ...]]:
    clicks = app.topics["clicks"].read()  # noqa: F841
    return sorted(duckdb.sql(sql).fetchall())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "data")


def test_a_changed_view_is_refused_rebuilt_beside_switched_and_switched_back(shop: Shop) -> None:
    with shop.code(OLD) as app:
        shop.some_clicks(app, 60)
        shop.run(app)
        assert served(app) == expected(app, OLD)

    with shop.code(NEW) as app:
        with pytest.raises(PlanChanged) as told:
            app.run()
        assert {"column 'page' is gone", "key was (page), is (user_id)"} <= set(told.value.details)
        assert "`headwater view rebuild counts --app FILE`" in str(told.value)

    with shop.code(NEW) as app, shop.code(OLD) as old:
        (version,) = app.rebuild("counts", say=shop.said.append)
        assert (version.version, version.state, version.topic) == (2, "built", "counts.v2")
        assert shop.said[-1] == "building counts version 2: 100 %"
        assert served(old) == expected(old, OLD)
        assert served(app) == expected(old, OLD)  # the new code too reads what is current
        with pytest.raises(NotCurrent, match="version 2 of view 'counts' is built but not current"):
            app.run()

    with shop.code(NEW) as app:
        app._running.versions.switch("counts")
        shop.some_clicks(app, 40)
    with shop.code(NEW) as app:
        shop.run(app)
        assert served(app) == expected(app, NEW)
        assert [change.kind for change in app.diff()] == ["unchanged"]

    with shop.code(OLD) as app:
        with pytest.raises(NotCurrent, match="this code is version 1 .* --back"):
            app.run()
        app._running.versions.switch_back("counts")
    with shop.code(OLD) as app:
        shop.run(app)
        assert served(app) == expected(app, OLD)


def test_lost_state_is_built_again_as_a_version_of_the_same_code(shop: Shop) -> None:
    with shop.code(OLD) as app:
        shop.some_clicks(app, 30)
        shop.run(app)
    for kept in (shop.folder / "pipelines").glob("*/*/kept"):
        shutil.rmtree(kept)
    with shop.code(OLD) as app:
        with pytest.raises(CheckpointLost, match="`headwater view rebuild counts --app FILE` builds it again"):
            app.run()
        app.rebuild("counts", switch=True)
    with shop.code(OLD) as app:
        assert served(app) == expected(app, OLD)
        assert [change.kind for change in app.diff()] == ["unchanged"]


def test_a_rebuild_from_what_is_left_counts_what_is_left(shop: Shop) -> None:
    few = Settings(most_rows=5)
    with shop.code(OLD, few) as app:
        shop.some_clicks(app, 4)
        shop.run(app)
        for _ in range(6):
            shop.some_clicks(app, 4)
    with shop.code(NEW, few) as app:
        assert served(app) != expected(app, NEW)
        app.rebuild("counts", from_retained=True, switch=True)
        assert served(app) == expected(app, NEW)


def test_two_apps_on_one_log_do_not_disturb_each_other(shop: Shop) -> None:
    with shop.code(OLD) as app, hw.App("office", log=f"file:{shop.folder}") as office:
        office.topic("clicks", {"user_id": "int64", "page": "string"}, key="user_id")
        office.view("by_user", sql=NEW)
        shop.some_clicks(app, 50)
        shop.run(app)
        office.run(until="caught-up")
        shop.some_clicks(app, 30)
        shop.run(app)
        office.run(until="caught-up")
        assert served(app) == expected(app, OLD)
        found = sorted(tuple(row.values()) for row in office.views["by_user"].read().to_pylist())
        assert found == expected(app, NEW)
        assert [change.kind for change in (*app.diff(), *office.diff())] == ["unchanged", "unchanged"]

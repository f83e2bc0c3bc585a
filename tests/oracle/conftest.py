from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headwater.process.session import spark_session
from headwater.process.source import FEW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def all_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches here have few records, and Spark is what is tested. Who wants both ways asks for `each_way`."""
    monkeypatch.setenv(FEW, "0")


@pytest.fixture(params=["by Spark", "at once"])
def each_way(request: pytest.FixtureRequest, all_by_spark: None, monkeypatch: pytest.MonkeyPatch) -> str:
    way: str = request.param
    if way == "at once":
        monkeypatch.delenv(FEW)
    return way


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for the whole suite: starting it takes longer than most tests."""
    session = spark_session("tests", words=tmp_path_factory.mktemp("spark") / "spark.log")
    yield session
    session.stop()

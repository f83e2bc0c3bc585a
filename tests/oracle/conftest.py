from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headwater.process.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for the whole suite: starting it takes longer than most tests."""
    session = spark_session("tests", words=tmp_path_factory.mktemp("spark") / "spark.log")
    yield session
    session.stop()

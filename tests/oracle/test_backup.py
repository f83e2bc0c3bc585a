"""A live backup under Spark: restored elsewhere, the view goes on from Spark's own state and stays what DuckDB says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.derived import DerivedFiles
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.backup import backup, restore
from tests.oracle.test_pipeline import House

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_restored_view_goes_on_from_its_state(
    tmp_path: Path, spark: SparkSession, until: Callable[..., None]
) -> None:
    log = EmbeddedLog(tmp_path / "data")
    house = House(log, tmp_path / "data", spark, until)
    house.some_users(30)
    house.some_clicks(100)
    house.start()
    house.catch_up()
    house.some_users(5)
    house.catch_up()
    stop = threading.Event()

    def clicks() -> None:
        while not stop.is_set():
            house.some_clicks(5)

    thread = threading.Thread(target=clicks)
    thread.start()
    try:
        made = backup(log, tmp_path / "backup", along=DerivedFiles(quiet_s=60))
    finally:
        stop.set()
        thread.join()
        house.pipeline.stop()
        log.close()
    assert made.left_out == ()
    restore(tmp_path / "backup", tmp_path / "again")

    restored = EmbeddedLog(tmp_path / "again")
    again = House(restored, tmp_path / "again", spark, until)
    again.countries = dict(house.countries)
    before = restored.covered(again.pipeline.producer)
    again.start()
    try:
        again.some_users(10)
        again.some_clicks(50)
        again.catch_up()
    finally:
        again.pipeline.stop()
    after = restored.covered(again.pipeline.producer)
    assert before is not None
    assert after is not None
    assert after.sequence > before.sequence > 0
    assert again.view() == again.expected()
    restored.close()

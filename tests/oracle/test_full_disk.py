"""The disk fills up in the middle of a batch; with room again the next run goes on, and the answer is DuckDB's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import headwater as hw
from headwater.errors import PipelineFailed
from headwater.log import Topic
from headwater.process.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
MEGABYTES = 64


class SmallDisk:
    """A file system of its own, that can be full while the others are not: in memory, which takes the right to mount.

    What is used by a function under Spark travels there: hence paths, and no names of this module.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self._ballast = self.folder / "ballast"
        self._soon = folder / "soon"
        self.folder.mkdir()

    def mount(self) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "headwater-test", str(self.folder)]
        return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)  # processes of Spark's have files open

    def fill_soon(self) -> None:
        """The next time that it is asked for by `filling`."""
        self._soon.touch()

    def filling(self) -> Callable[[], None]:
        """For a function that runs in the middle of a batch."""
        soon, ballast = str(self._soon), str(self._ballast)

        def fill_if_asked_for() -> None:
            import os

            if not os.path.exists(soon):
                return
            os.unlink(soon)
            with open(ballast, "wb", buffering=0) as file:
                for size in (1024 * 1024, 4096, 1):
                    try:
                        while True:
                            file.write(bytes(size))
                    except OSError:
                        continue

        return fill_if_asked_for

    def room(self) -> int:
        about = os.statvfs(self.folder)
        return about.f_bavail * about.f_frsize

    def make_room(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def small_disk(tmp_path: Path, must_have: Callable[[bool, str], None]) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path)
    must_have(disk.mount(), "no right to mount a small file system: run as root")
    yield disk
    disk.unmount()


class House:
    """Two pipelines over the same records, one in each lane."""

    def __init__(self, disk: SmallDisk, spark: SparkSession, until: Callable[..., None]) -> None:
        self.app = app = hw.App("house", log=f"file:{disk.folder / 'log'}")
        self._spark, self._until = spark, until
        self.buys = app.topic("buys", {"user_id": "int64", "price": "float64", "note": "string"}, key="user_id")
        fill_if_asked_for = disk.filling()

        @app.stream("doubled", {"user_id": "int64", "price": "float64", "note": "string"}, key="user_id")
        def doubled(buys: DataFrame) -> DataFrame:
            def twice(frames: Any) -> Any:
                for frame in frames:
                    fill_if_asked_for()
                    frame["price"] = frame["price"] * 2
                    yield frame

            return buys.mapInPandas(twice, "user_id long, price double, note string")

        @app.fold("spent", {"total": "float64", "n": "int64"}, of="buys", initial={"total": 0.0, "n": 0})
        def spent(state: dict[str, Any], buy: dict[str, Any]) -> dict[str, Any]:
            fill_if_asked_for()
            return {"total": state["total"] + buy["price"], "n": state["n"] + 1}

        self._made = 0

    def some_buys(self, count: int) -> None:
        numbers = range(self._made, self._made + count)
        self.buys.append([{"user_id": n % 7, "price": 0.1 * (n % 13), "note": f"note {n} " * 9} for n in numbers])
        self._made += count

    def start(self, name: str) -> Pipeline:
        pipeline = Pipeline(self.app._running.derived[name].lane, self.app.log, self.app.folder)
        pipeline.prepare()
        pipeline.check(self._spark)
        pipeline.start(self._spark)
        return pipeline

    def through(self, pipeline: Pipeline) -> None:
        goal = self.app.log.snapshot(["buys"]).position

        def covered() -> bool:
            failure = pipeline.failure()
            if failure is not None:
                raise failure
            done = self.app.log.covered(pipeline.producer)
            return done is not None and done.progress.end.covers(goal)

        self._until(covered, within_s=120, what=f"{pipeline.name}'s covering of its input")

    def failed(self, pipeline: Pipeline) -> Exception:
        self._until(lambda: not pipeline.running, within_s=120, what="the end of the run")
        failure = pipeline.failure()
        assert failure is not None
        return failure

    def found(self, name: str) -> list[tuple[Any, ...]]:
        rows = Topic(self.app.log, self.app.log.topic(name)).read()  # noqa: F841
        if name == "doubled":
            return sorted(duckdb.sql("SELECT user_id, price, note FROM rows").fetchall())
        summed = "SELECT user_id, total, n, sum(_weight) AS w FROM rows GROUP BY ALL HAVING w <> 0"
        return sorted(duckdb.sql(summed).fetchall())

    def expected(self, name: str) -> list[tuple[Any, ...]]:
        buys = self.buys.read()
        assert buys.num_rows == self._made
        if name == "doubled":
            return sorted(duckdb.sql("SELECT user_id, price * 2, note FROM buys").fetchall())
        in_order = "list(price ORDER BY _partition, _offset)"
        summed = f"SELECT user_id, list_reduce({in_order}, lambda x, y: x + y), count(*), 1 FROM buys GROUP BY user_id"
        return sorted(duckdb.sql(summed).fetchall())


@pytest.mark.parametrize("name", ["doubled", "spent"])
def test_a_disk_that_is_full_in_the_middle_of_a_batch_is_told_and_nothing_is_lost_or_doubled(
    name: str, small_disk: SmallDisk, spark: SparkSession, until: Callable[..., None]
) -> None:
    house = House(small_disk, spark, until)
    house.some_buys(300)
    pipeline = house.start(name)
    house.through(pipeline)
    before = house.found(name)
    small_disk.fill_soon()
    house.some_buys(5000)
    failure = house.failed(pipeline)
    assert small_disk.room() < 4096
    assert isinstance(failure, PipelineFailed)
    assert failure.batch == 1
    # RocksDB may be the first to notice, and says only that it cannot write.
    assert f"the disk with {small_disk.folder}" in failure.why, failure.why
    assert "is full" in failure.why, failure.why
    assert house.found(name) == before, "nothing of the batch is to be seen"

    small_disk.make_room()
    pipeline = house.start(name)
    house.through(pipeline)
    house.some_buys(100)
    house.through(pipeline)
    pipeline.stop()
    assert house.found(name) == house.expected(name)
    house.app.close()

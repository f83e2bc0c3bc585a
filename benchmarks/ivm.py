"""`make bench NAME=ivm`: a three-way join with aggregation over many rows, kept up to date for 1,000 changes at a time,
against computing it anew: in Spark over Parquet files, and in DuckDB over the rows in memory. Of two kinds: tables of
TPC-H, and a star of small tables around a large one.

Ours: from the append of the changes to the append of what they change in the view, on Spark, exactly once, durable.
The peers only compute: their data is ready, their answer goes nowhere. DuckDB also with the changes taken into its
tables first, as ours takes them in. All warm; the median of some rounds counts.
Once with all rows and once with a tenth: the cost of a change must not grow with what exists.
Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import headwater as hw
from for_ivm.star import STAR
from for_ivm.tpch import TPCH
from for_ivm.workload import Data, Workload
from headwater.log import Topic
from headwater.log.position import AppendNumber
from headwater.log.protocol import Part
from headwater.log.splitting import split
from headwater.process.keyed.lane import KeyedLane
from headwater.process.pipeline import Pipeline
from headwater.process.session import spark_session
from headwater.process.source import Limits
from headwater.process.sql.planner import plan_view

WORKLOADS = {"tpch": TPCH, "star": STAR}
BLOCK = 500_000
WARM = 50
"""Rounds of ours that do not count: so long Java compiles what every batch runs through."""
PAUSE_S = 0.02
"""Between the end of a round and the next one."""
WITHIN_S = 900.0
MOST_OF_SPARK = 7
"""Rounds of Spark's: its times are long, and differ little."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", choices=sorted(WORKLOADS), nargs="*", default=list(WORKLOADS))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ivm-") as folder:
        spark = spark_session("ivm", words=Path(folder) / "spark.log")
        told = {name: measured(name, Path(folder) / name, given.rows, given.rounds, spark) for name in given.only}
        spark.stop()
    first = told[given.only[0]]
    large = first[str(given.rows)]
    print(
        json.dumps(
            {
                "bench": "ivm",
                "unit": "s for 1,000 changes",
                "ours": large["ours_s"],
                "peer": large["spark_s"],
                "peer_name": "Spark, computing it anew",
                "ratio": first["ratio_to_spark"],
                "detail": told,
            }
        )
    )


def measured(name: str, folder: Path, rows: int, rounds: int, spark: Any) -> dict[str, Any]:
    """With all rows, and with a tenth."""
    small = measure(WORKLOADS[name], folder / "small", rows // 10, rounds, spark)
    say(f"{name}, {rows // 10:,} rows: {small}")
    large = measure(WORKLOADS[name], folder / "large", rows, rounds, spark)
    say(f"{name}, {rows:,} rows: {large}")
    return {
        str(rows // 10): small,
        str(rows): large,
        "ratio_to_spark": round(large["spark_s"] / large["ours_s"], 1),
        "ratio_to_duckdb": round(large["duckdb_s"] / large["ours_s"], 1),
        "ratio_to_duckdb_taking_in": round(large["duckdb_taking_in_s"] / large["ours_s"], 1),
        "growth_from_a_tenth": round(large["ours_s"] / small["ours_s"], 2),
    }


def measure(workload: Workload, folder: Path, rows: int, rounds: int, spark: Any) -> dict[str, float]:
    data = workload.data(rows)
    log = hw.open(f"file:{folder / 'log'}")
    topics = {name: Topic(log, log.create(spec)) for name, spec in workload.specs.items()}
    for name, table in data.tables().items():
        for start in range(0, table.num_rows, BLOCK):
            topics[name].append(table.slice(start, BLOCK))
    pipeline = Pipeline(KeyedLane(plan_view("view", workload.sql, workload.specs)), log, folder, limits=Limits())
    pipeline.prepare()
    pipeline.start(spark)
    loaded = timed(lambda: wait(log, pipeline))
    planned = [data.changes() for _ in range(WARM + rounds)]
    spent = []
    for changes in planned:
        time.sleep(PAUSE_S)
        began = time.monotonic()
        log.append(parts(log, workload, changes))
        wait(log, pipeline)
        spent.append(time.monotonic() - began)
    pipeline.stop()
    check(log, pipeline, workload, data)
    result = {"ours_s": round(statistics.median(spent[WARM:]), 4), "load_s": round(loaded, 1)}
    result |= in_duckdb(workload, data, rounds)
    result["spark_s"] = round(in_spark(folder, workload, data, rounds, spark), 3)
    log.close()
    shutil.rmtree(folder)
    return result


def parts(log: hw.Log, workload: Workload, changes: Mapping[str, pa.Table]) -> list[Part]:
    """Of all tables, for one append: one batch."""
    return [
        log.stage(name, partition, rows)
        for name, table in changes.items()
        for partition, rows in split(
            table.combine_chunks().to_batches()[0], workload.specs[name].key, workload.specs[name].partitions
        ).items()
    ]


def wait(log: hw.Log, pipeline: Pipeline) -> None:
    goal = log.snapshot(pipeline.lane.inputs).position
    give_up_at = time.monotonic() + WITHIN_S
    heard = AppendNumber(0)
    while (covered := log.covered(pipeline.producer)) is None or not covered.progress.end.covers(goal):
        failure = pipeline.failure()
        if failure is not None:
            raise failure
        assert time.monotonic() < give_up_at, "the view did not follow in time"
        heard = log.wait(heard, 0.01)


def check(log: hw.Log, pipeline: Pipeline, workload: Workload, data: Data) -> None:
    oracle = duckdb.connect()
    for name, table in data.tables().items():
        oracle.register(name, table)
    oracle.register("view_changes", Topic(log, log.topic(pipeline.topic)).read())
    has = oracle.execute(
        f"SELECT {workload.answer} FROM view_changes GROUP BY ALL HAVING sum(_weight) > 0 ORDER BY ALL"
    ).fetchall()
    assert has == oracle.execute(f"{workload.sql} ORDER BY ALL").fetchall(), "the view is the answer"


def in_duckdb(workload: Workload, data: Data, rounds: int) -> dict[str, float]:
    connection = duckdb.connect()
    connection.execute(f"SET threads = {os.cpu_count()}")
    for name, table in data.tables().items():
        connection.register("t", table)
        connection.execute(f"CREATE TABLE {name} AS FROM t")
        connection.unregister("t")

    def ask() -> None:
        connection.execute(workload.sql).fetchall()

    def take_in_and_ask(changes: Mapping[str, pa.Table]) -> None:
        for name, table in changes.items():
            same = " AND ".join(f"{name}.{key} = t.{key}" for key in workload.specs[name].key)
            connection.register("t", table)
            connection.execute(f"DELETE FROM {name} USING t WHERE t._weight < 0 AND {same}")
            connection.execute(f"INSERT INTO {name} SELECT * EXCLUDE (_weight) FROM t WHERE _weight > 0")
            connection.unregister("t")
        ask()

    spent = [timed(ask) for _ in range(rounds + 3)]
    changes = [data.changes() for _ in range(rounds + 3)]
    taken_in = [timed(partial(take_in_and_ask, each)) for each in changes]
    return {
        "duckdb_s": round(statistics.median(spent[3:]), 4),
        "duckdb_taking_in_s": round(statistics.median(taken_in[3:]), 4),
    }


def in_spark(folder: Path, workload: Workload, data: Data, rounds: int, spark: Any) -> float:
    for name, table in data.tables().items():
        file = folder / "parquet" / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file, row_group_size=BLOCK)
        spark.read.parquet(str(file)).createOrReplaceTempView(name)
    spent = [timed(lambda: spark.sql(workload.sql).collect()) for _ in range(min(rounds, MOST_OF_SPARK) + 3)]
    return statistics.median(spent[3:])


def timed(act: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()

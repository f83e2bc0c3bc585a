"""`make bench NAME=ivm`: a three-way join with aggregation over many rows, kept up to date for 1,000 changes at a time,
against computing it anew: in Spark over Parquet files, and in DuckDB over the rows in memory.

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.log.position import AppendNumber
from headwater.log.protocol import Part
from headwater.log.splitting import split
from headwater.process.keyed.lane import KeyedLane
from headwater.process.pipeline import Pipeline
from headwater.process.session import spark_session
from headwater.process.source import Limits
from headwater.process.sql.planner import plan_view
from headwater.records import schema_of

SQL = """
SELECT c.region, p.category, count(*) AS orders, sum(o.amount) AS amount, max(o.amount) AS most
FROM orders o JOIN customers c ON o.customer = c.customer JOIN products p ON o.product = p.product
GROUP BY c.region, p.category"""
SPECS = {
    "orders": TopicSpec(
        "orders",
        schema_of({"id": "int64", "customer": "int64", "product": "int64", "amount": "int64"}),
        key=("id",),
        kind="table",
    ),
    "customers": TopicSpec(
        "customers", schema_of({"customer": "int64", "region": "int32"}), key=("customer",), kind="table"
    ),
    "products": TopicSpec(
        "products", schema_of({"product": "int64", "category": "int32"}), key=("product",), kind="table"
    ),
}
BLOCK = 500_000
CHANGES = 1_000
WARM = 50
"""Rounds of ours that do not count: so long Java compiles what every batch runs through."""
PAUSE_S = 0.02
"""Between the end of a round and the next one."""
WITHIN_S = 900.0


class Data:
    """Nine of ten rows are orders. A round changes the amounts of some of them, and the region of one customer."""

    def __init__(self, rows: int) -> None:
        self._chance = np.random.default_rng(7)
        few = rows // 20
        self.tables = {
            "customers": pa.table({"customer": np.arange(few), "region": self._some(few, 50).astype(np.int32)}),
            "products": pa.table({"product": np.arange(few), "category": self._some(few, 100).astype(np.int32)}),
            "orders": pa.table(
                {
                    "id": np.arange(rows - 2 * few),
                    "customer": self._some(rows - 2 * few, few),
                    "product": self._some(rows - 2 * few, few),
                    "amount": self._some(rows - 2 * few, 100_000),
                }
            ),
        }

    def _some(self, count: int, below: int) -> Any:
        return self._chance.integers(0, below, count)

    def changes(self) -> dict[str, pa.Table]:
        """What a round appends; the tables are as they are after it."""
        changed = {"orders": self._change("orders", "amount", CHANGES // 2, 100_000)}
        changed["customers"] = self._change("customers", "region", 1, 50)
        return changed

    def _change(self, name: str, column: str, count: int, below: int) -> pa.Table:
        table = self.tables[name]
        places = self._chance.choice(table.num_rows, count, replace=False)
        old = table.take(places)
        kind = table.schema.field(column).type
        new = old.set_column(old.schema.get_field_index(column), column, pa.array(self._some(count, below)).cast(kind))
        values = table[column].to_numpy().copy()
        values[places] = new[column].to_numpy()
        self.tables[name] = table.set_column(table.schema.get_field_index(column), column, pa.array(values))
        weights = pa.array(np.repeat(np.array([-1, 1], np.int64), count))
        return pa.concat_tables([old, new]).append_column("_weight", weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ivm-") as folder:
        spark = spark_session("ivm", words=Path(folder) / "spark.log")
        told = {
            str(rows): measure(Path(folder) / str(rows), rows, given.rounds, spark)
            for rows in (given.rows // 10, given.rows)
        }
        spark.stop()
    large, small = told[str(given.rows)], told[str(given.rows // 10)]
    print(
        json.dumps(
            {
                "bench": "ivm",
                "unit": "s for 1,000 changes",
                "ours": large["ours_s"],
                "peer": large["spark_s"],
                "peer_name": "Spark, computing it anew",
                "ratio": round(large["spark_s"] / large["ours_s"], 1),
                "detail": {
                    **told,
                    "ratio_to_duckdb": round(large["duckdb_s"] / large["ours_s"], 1),
                    "ratio_to_duckdb_taking_in": round(large["duckdb_taking_in_s"] / large["ours_s"], 1),
                    "growth_from_a_tenth": round(large["ours_s"] / small["ours_s"], 2),
                },
            }
        )
    )


def measure(folder: Path, rows: int, rounds: int, spark: Any) -> dict[str, float]:
    data = Data(rows)
    log = hw.open(f"file:{folder / 'log'}")
    topics = {name: Topic(log, log.create(spec)) for name, spec in SPECS.items()}
    for name, table in data.tables.items():
        for start in range(0, table.num_rows, BLOCK):
            topics[name].append(table.slice(start, BLOCK))
    pipeline = Pipeline(KeyedLane(plan_view("sales", SQL, SPECS)), log, folder, limits=Limits())
    pipeline.prepare()
    pipeline.start(spark)
    loaded = timed(lambda: wait(log, pipeline))
    say(f"{rows:,} rows: loaded in {loaded:.0f} s")
    planned = [data.changes() for _ in range(WARM + rounds)]  # beforehand: it goes through all rows
    spent = []
    for changes in planned:
        time.sleep(PAUSE_S)
        began = time.monotonic()
        log.append(parts(log, changes))
        wait(log, pipeline)
        spent.append(time.monotonic() - began)
    pipeline.stop()
    check(log, pipeline, data)
    result = {"ours_s": round(statistics.median(spent[WARM:]), 4), "load_s": round(loaded, 1)}
    result |= in_duckdb(data, rounds)
    result["spark_s"] = round(in_spark(folder, data, rounds, spark), 3)
    log.close()
    shutil.rmtree(folder)
    say(f"{rows:,} rows: {result}")
    return result


def parts(log: hw.Log, changes: dict[str, pa.Table]) -> list[Part]:
    """Of both tables, for one append: one batch."""
    return [
        log.stage(name, partition, rows)
        for name, table in changes.items()
        for partition, rows in split(
            table.combine_chunks().to_batches()[0], SPECS[name].key, SPECS[name].partitions
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


def check(log: hw.Log, pipeline: Pipeline, data: Data) -> None:
    oracle = duckdb.connect()
    for name, table in data.tables.items():
        oracle.register(name, table)
    oracle.register("view_changes", Topic(log, log.topic(pipeline.topic)).read())
    has = oracle.execute(
        "SELECT region, category, orders, amount, most FROM view_changes"
        " GROUP BY ALL HAVING sum(_weight) > 0 ORDER BY ALL"
    ).fetchall()
    assert has == oracle.execute(f"{SQL} ORDER BY ALL").fetchall(), "the view is the answer"


def in_duckdb(data: Data, rounds: int) -> dict[str, float]:
    connection = duckdb.connect()
    connection.execute(f"SET threads = {os.cpu_count()}")
    for name, table in data.tables.items():
        connection.register("t", table)
        connection.execute(f"CREATE TABLE {name} AS FROM t")
        connection.unregister("t")

    def ask() -> None:
        connection.execute(SQL).fetchall()

    def take_in_and_ask(changes: dict[str, pa.Table]) -> None:
        for name, column in (("orders", "amount"), ("customers", "region")):
            (key,) = SPECS[name].key
            connection.register("t", changes[name].slice(changes[name].num_rows // 2))
            connection.execute(f"UPDATE {name} SET {column} = t.{column} FROM t WHERE {name}.{key} = t.{key}")
            connection.unregister("t")
        ask()

    spent = [timed(ask) for _ in range(rounds + 3)]
    changes = [data.changes() for _ in range(rounds + 3)]
    taken_in = [timed(lambda each=each: take_in_and_ask(each)) for each in changes]
    return {
        "duckdb_s": round(statistics.median(spent[3:]), 4),
        "duckdb_taking_in_s": round(statistics.median(taken_in[3:]), 4),
    }


def in_spark(folder: Path, data: Data, rounds: int, spark: Any) -> float:
    for name, table in data.tables.items():
        file = folder / "parquet" / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, file, row_group_size=BLOCK)
        spark.read.parquet(str(file)).createOrReplaceTempView(name)
    spent = [timed(lambda: spark.sql(SQL).collect()) for _ in range(rounds + 3)]
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

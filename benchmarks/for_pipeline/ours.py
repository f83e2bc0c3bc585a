"""Our side of the two comparisons: a topic through Spark to nowhere, and state by key.

What a view's pipeline has done counts when its output is durable in the view's topic; the store behind it is not part
of the comparison, as the peers have none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import headwater as hw
from for_pipeline.children import Deadline, Stopwatch, say
from for_pipeline.peers import run_through
from for_pipeline.records import COLUMNS, PARTITIONS, Sizes, blocks, load_of_all
from headwater.process.job import Job
from headwater.process.keyed.lane import KeyedLane
from headwater.process.keyed.latest import Latest
from headwater.process.pipeline import Pipeline
from headwater.process.plan import CHANGES, Node, Plan, Read, Send
from headwater.process.session import spark_session
from headwater.process.source import Limits
from headwater.process.sql.planner import plan_view
from headwater.records import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "headwater-rows"
COUNT = "SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id"


def make_app(folder: Path) -> hw.App:
    app = hw.App("bench", log=f"file:{folder / 'log'}")
    app.topic("clicks", COLUMNS, key="user_id", time="at", partitions=PARTITIONS)
    return app


# --- topic to nowhere ---------------------------------------------------------------------------------


def topic_to_nowhere(folder: Path, sizes: Sizes, source: str) -> dict[str, Any]:
    app = make_app(folder)
    for block in blocks(sizes.rows):
        app.topics["clicks"].append(block)
    spark = spark_session("bench", words=folder / "spark.log")
    options = source_options(app, sizes, cores=spark.sparkContext.defaultParallelism)
    frame = spark.readStream.format(source).options(**options).load()
    result = run_through(frame, folder, rounds=sizes.rounds, rows=sizes.rows)
    spark.stop()
    app.close()
    return {**result, "source": source}


def source_options(app: hw.App, sizes: Sizes, *, cores: int) -> Mapping[str, str]:
    """All columns of `clicks`, all that is there in one batch."""
    folder = app.folder / "pipelines" / "nowhere" / "1"
    producer = app.log.begin("nowhere")
    job = Job(
        "nowhere", app.log.url, producer, topic="nowhere", folder=str(folder), query=str(folder), inputs=("clicks",)
    )
    return {"job": job.dump(), "topic": "clicks", **Limits(rows=sizes.rows, cores=cores).options()}


# --- state by key -------------------------------------------------------------------------------------


def state_by_key(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Both views at once over the same topic, as the native aggregation has both in one; then each in turn alone."""
    app = make_app(folder)
    spark = spark_session("bench", words=folder / "spark.log")
    specs = {"clicks": app.topics["clicks"].spec}
    count, latest = KeyedLane(plan_view("by_user", COUNT, specs)), KeyedLane(latest_price())
    result = {"keys": sizes.keys, **loads(app, spark, [count, latest], sizes)}
    for lane in (count, latest):
        alone = make_app(folder / lane.name)
        result[f"{lane.name}_alone"] = loads(alone, spark, [lane], sizes)
        alone.close()
    spark.stop()
    app.close()
    return result


def latest_price() -> Plan:
    order = [pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())]
    kept = pa.schema([("user_id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("price", pa.float64())])
    key = ("user_id",)
    read = Read("clicks", tuple(kept.names), (Send(f"SELECT * FROM {CHANGES}", key, node=0),), metadata=True)
    operator = Latest(pa.schema([*kept, *order]), key, time="at", by="time")
    return Plan("newest", "", (read,), (Node(operator, 0, (Send(None, key),)),), kept, key)


def loads(app: hw.App, spark: SparkSession, lanes: Sequence[KeyedLane], sizes: Sizes) -> dict[str, Any]:
    limits = Limits(rows=max(sizes.keys, 1_000_000))
    pipelines = [Pipeline(lane, app.log, app.folder / "pipelines", limits=limits) for lane in lanes]
    topic = app.topics["clicks"]
    try:
        for pipeline in pipelines:
            pipeline.prepare()
            pipeline.start(spark)
        # Users that are not among the keys: JVM and workers are warm, the keys' state is still empty.
        through(app, pipelines, topic.append(load_of_all(min(2_000, sizes.keys), 0, shift=-sizes.keys)))
        watch = Stopwatch()
        for number in range(sizes.rounds + 1):
            load = load_of_all(sizes.keys, number)
            with watch.lap():
                through(app, pipelines, topic.append(load))
            say(f"  load {number}: {sizes.keys / watch.last_s:,.0f} rows/s")
    finally:
        for pipeline in pipelines:
            pipeline.stop()
    return {"new_keys_rows_per_s": watch.first_rate(sizes.keys), **watch.rates(sizes.keys)}


def through(app: hw.App, pipelines: Sequence[Pipeline], position: hw.Position) -> None:
    deadline = Deadline("a load of all keys")
    for pipeline in pipelines:
        while True:
            done = app.log.covered(pipeline.producer)
            if done is not None and done.progress.end.covers(position.only(["clicks"])):
                break
            failure = pipeline.failure()
            if failure is not None:
                raise failure
            time.sleep(min(0.005, deadline.left()))

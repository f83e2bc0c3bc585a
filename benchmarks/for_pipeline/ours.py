"""Our side of the two comparisons: a topic through Spark to nowhere, and state by key.

What a view's pipeline has done counts when its output is durable in the view's topic; the store behind it is not part
of the comparison, as the peers have none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headwater as hw
from for_pipeline.children import Deadline, Stopwatch, say
from for_pipeline.peers import run_through
from for_pipeline.records import COLUMNS, PARTITIONS, Sizes, blocks, load_of_all
from headwater.errors import SqlRefused
from headwater.process.job import Job
from headwater.process.pipeline import Pipeline, producer_name
from headwater.process.plan import CHANGES, Plan, Read
from headwater.process.session import spark_session
from headwater.process.sql.planner import plan_view
from headwater.records import WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKED = "headwater-packed"
COUNT_AND_LATEST = "SELECT user_id, count(*) AS n, max_by(price, at) AS price FROM clicks GROUP BY user_id"
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
    frame = spark.readStream.format(source).options(**source_options(app, source, sizes, folder)).load()
    # The packed source counts blobs, not rows.
    rows = None if source == PACKED else sizes.rows
    watch = run_through(frame, folder, rounds=sizes.rounds, rows=rows)
    spark.stop()
    app.close()
    return {**watch.rates(sizes.rows), "source": source}


def source_options(app: hw.App, source: str, sizes: Sizes, folder: Path) -> Mapping[str, str]:
    """All columns of `clicks`, all that is there in one batch."""
    if source != PACKED:
        return {"log": app.log.url, "topic": "clicks", "maxrows": str(sizes.rows)}
    read = Read("clicks", tuple(COLUMNS), f"SELECT *, 1::BIGINT AS {WEIGHT} FROM {CHANGES}", ("user_id",))
    plan = Plan("nowhere", "", (read,), (), app.topics["clicks"].spec.schema, ("user_id",))
    job = Job(plan, app.log.url, app.log.begin("nowhere"), topic="nowhere", folder=str(folder / "nowhere"))
    return {"job": job.dump(), "maxrows": str(sizes.rows), "cores": "2"}


# --- state by key -------------------------------------------------------------------------------------


def state_by_key(folder: Path, sizes: Sizes) -> dict[str, Any]:
    app = make_app(folder)
    spark = spark_session("bench", words=folder / "spark.log")
    specs = {"clicks": app.topics["clicks"].spec}
    try:
        plan = plan_view("by_user", COUNT_AND_LATEST, specs)
    except SqlRefused as refusal:
        say(f"count and latest in one view is refused ({refusal.args[0]}): only counting is measured")
        plan = plan_view("by_user", COUNT, specs)
    result = loads(app, spark, plan, sizes)
    spark.stop()
    app.close()
    return {"keys": sizes.keys, "sql": plan.sql, **result}


def loads(app: hw.App, spark: SparkSession, plan: Plan, sizes: Sizes) -> dict[str, Any]:
    pipeline = Pipeline(plan, app.log, app.folder / "pipelines", max_rows=max(sizes.keys, 1_000_000))
    pipeline.prepare()
    pipeline.start(spark)
    topic = app.topics["clicks"]

    def through(position: hw.Position) -> None:
        deadline = Deadline("a load of all keys")
        while True:
            done = app.log.covered(producer_name(plan))
            if done is not None and done.progress.end.covers(position.only(["clicks"])):
                return
            failure = pipeline.failure()
            if failure is not None:
                raise failure
            time.sleep(min(0.005, deadline.left()))

    try:
        # Users that are not among the keys: JVM and workers are warm, the keys' state is still empty.
        through(topic.append(load_of_all(min(2_000, sizes.keys), 0, shift=-sizes.keys)))
        watch = Stopwatch()
        for number in range(sizes.rounds + 1):
            load = load_of_all(sizes.keys, number)
            with watch.lap():
                through(topic.append(load))
            say(f"  load {number}: {sizes.keys / watch.last_s:,.0f} rows/s")
    finally:
        pipeline.stop()
    return {"new_keys_rows_per_s": watch.first_rate(sizes.keys), **watch.rates(sizes.keys)}

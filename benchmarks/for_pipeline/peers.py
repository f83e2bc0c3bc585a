"""The peers: Spark itself, as its documents say to use it, with the settings that ours has too.

- Kafka: Spark's connector and `from_json`, a local broker, records as JSON in lz4 batches of a megabyte.
- Per key: `transformWithStateInPandas`, one ValueState a key.
- Native: `groupBy(...).agg(count, max_by)` in update mode. The fastest that Spark has for this; state in RocksDB.

The last two read Parquet files, Spark's fastest source, and write to nowhere: they do less than ours, whose input and
output are durable topics.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from for_pipeline.children import STAGE_S, Stopwatch, say
from for_pipeline.records import DDL, Sizes, blocks, load_of_all

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

SPARK = "4.2.0"
SCALA = "2.13"
TOKENS = "4.0.0"
"""The newest published version of the connector's helper for delegation tokens, which are not used here."""


def connector_jars() -> str:
    """Spark's Kafka connector and what Spark itself does not have of it, as `spark.jars` wants it."""
    from headwater.testing.maven import Artifact, jars

    spark, tokens = "org.apache.spark", f"spark-token-provider-kafka-0-10_{SCALA}"
    wanted = [
        Artifact(spark, f"spark-sql-kafka-0-10_{SCALA}", SPARK, without=("*:*",)),
        Artifact(spark, tokens, TOKENS, without=("*:*",)),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.2", without=("*:*",)),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1", without=("*:*",)),
    ]
    return ",".join(str(jar) for jar in sorted(jars(f"spark-kafka-{SPARK}", wanted).glob("*.jar")))


def peer_session(**settings: str) -> SparkSession:
    from pyspark.sql import SparkSession

    from headwater.process import session

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet = Path(session.__file__).with_name("log4j2.properties").as_uri()
    rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    fixed = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": rocksdb,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.master("local[*]").appName("peer")
    for name, value in {**fixed, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run_through(frame: DataFrame, checkpoints: Path, *, rounds: int, rows: int) -> dict[str, Any]:
    """Runs over all that is there, in one batch, to nowhere; the first one warms up.

    A run is from the start of a query to its end: with what it costs to start one. The batch alone is told beside it.
    """
    runs, batches = Stopwatch(), Stopwatch()
    for number in range(rounds + 1):
        checkpoint = str(checkpoints / f"checkpoint-{number}")
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        with runs.lap():
            query = writer.start()
            if not query.awaitTermination(int(STAGE_S)):
                query.stop()
                raise TimeoutError(f"a query to nowhere: not through after {STAGE_S:g} s")
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        seen = sum(each["numInputRows"] for each in progress)
        assert seen == rows, f"{seen:,} of {rows:,} rows were read"
        batches.add(sum(each["durationMs"]["triggerExecution"] for each in progress) / 1000)
        say(f"  run {number}: {runs.last_s:.2f} s, of it the batch {batches.last_s:.2f} s: {progress[0]['durationMs']}")
    return {**runs.rates(rows), "batch_rows_per_s": batches.rates(rows)["rows_per_s"]}


# --- Kafka --------------------------------------------------------------------------------------------


def kafka_to_nowhere(folder: Path, sizes: Sizes) -> dict[str, Any]:
    from headwater.testing.kafka import KafkaBroker

    jars = connector_jars()
    with KafkaBroker(folder / "broker") as broker:
        produce(broker.bootstrap, "clicks", sizes.rows)
        say(f"kafka {broker.version} has {sizes.rows:,} records")
        spark = peer_session(**{"spark.jars": jars})
        records = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", "clicks")
            .option("startingOffsets", "earliest")
            .load()
        )
        result = run_through(typed(records), folder / "typed", rounds=sizes.rounds, rows=sizes.rows)
        undecoded = run_through(records.select("value"), folder / "undecoded", rounds=1, rows=sizes.rows)
        spark.stop()
    return {
        **result,
        "undecoded_rows_per_s": undecoded["rows_per_s"],
        "version": f"Spark {SPARK}, Kafka {broker.version}",
    }


def typed(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return records.select(F.from_json(F.col("value").cast("string"), DDL).alias("click")).select("click.*")


def produce(bootstrap: str, topic: str, rows: int) -> None:
    import kafka_peer  # as the benchmark of the log does it

    rows_of = (row for block in blocks(rows) for row in block.to_pylist())
    made = kafka_peer.make_topic(bootstrap, topic)
    kafka_peer.send_all(kafka_peer.bulk_producer(bootstrap), made, map(kafka_peer.to_message, rows_of))


# --- state --------------------------------------------------------------------------------------------


def state_by_key(folder: Path, sizes: Sizes) -> dict[str, Any]:
    spark = peer_session()
    loads = Loads(spark, folder / "per-key", sizes.few_keys)
    per_key = per_key_state(loads.frame)
    result = {"per_key": {"keys": sizes.few_keys, **loads.measure(per_key, sizes.rounds)}}
    say(f"transformWithStateInPandas per key: {result['per_key']}")
    loads = Loads(spark, folder / "native", sizes.keys)
    result["native"] = {"keys": sizes.keys, **loads.measure(native(loads.frame), sizes.rounds)}
    say(f"native aggregation: {result['native']}")
    spark.stop()
    return result


def native(clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return clicks.groupBy("user_id").agg(F.count("*").alias("n"), F.max_by("price", "at").alias("price"))


def per_key_state(clicks: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class CountAndLatest(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.known = handle.getValueState("known", "n long, price double, at_us long")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            import pandas as pd

            n, price, at = self.known.get() or (0, 0.0, 0)
            for frame in rows:
                n += len(frame)
                times = frame["at"].to_numpy().astype("datetime64[us]").astype("int64")
                newest = times.argmax()
                if times[newest] >= at:
                    price, at = float(frame["price"].to_numpy()[newest]), int(times[newest])
            self.known.update((n, price, at))
            yield pd.DataFrame({"user_id": [key[0]], "n": [n], "price": [price]})

        def close(self) -> None:
            pass

    answer = "user_id long, n long, price double"
    return clicks.groupBy("user_id").transformWithStateInPandas(CountAndLatest(), answer, "Update", "None")


class Loads:
    """Files of one click a key, dropped one by one into the folder that a query follows."""

    def __init__(self, spark: SparkSession, folder: Path, keys: int) -> None:
        self._folder, self._keys, self._files = folder, keys, 0
        self._inbox = folder / "in"
        self._inbox.mkdir(parents=True)
        self.frame = spark.readStream.schema(DDL).parquet(str(self._inbox))

    def measure(self, frame: DataFrame, rounds: int) -> dict[str, Any]:
        """Rows a second of the load in which all keys are new, and of later ones, which find them all."""
        query = (
            frame.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        try:
            # Some clicks of users that are not among the keys: JVM and workers are warm, the state is still empty.
            self._publish(self._staged(load_of_all(min(2_000, self._keys), 0, shift=-self._keys)))
            query.processAllAvailable()
            watch = Stopwatch()
            for number in range(rounds + 1):
                load = self._staged(load_of_all(self._keys, number))
                with watch.lap():
                    self._publish(load)
                    query.processAllAvailable()
                state = query.lastProgress["stateOperators"][0]["numRowsTotal"] if query.lastProgress else None
                say(f"  load {number}: {self._keys / watch.last_s:,.0f} rows/s, {state} rows of state")
        finally:
            query.stop()
        return {"new_keys_rows_per_s": watch.first_rate(self._keys), **watch.rates(self._keys)}

    def _staged(self, clicks: pa.Table) -> Path:
        file = self._folder / "load.part"
        # Four row groups: Spark reads the file in as many tasks as it has cores.
        pq.write_table(clicks, file, row_group_size=-(-clicks.num_rows // 4))
        return file

    def _publish(self, file: Path) -> None:
        self._files += 1
        file.rename(self._inbox / f"{self._files:04}.parquet")

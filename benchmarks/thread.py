"""`make bench NAME=thread`: clicks joined with users, counted and counted distinct by page, from topic to view.

Ours: the topic, the keyed pipeline, the SQLite store; a record counts when the view that users read covers it.
Peer: the same job as a user of plain PySpark writes it: JSON files, a join with a static frame of users,
transformWithStateInPandas per page, and a foreachBatch that only notes the time (its results are written nowhere).
Two ways of keeping the sets are tried and the faster one counts: one value a page, or Spark's MapState.
The peer does less: it does not notice when a user changes, and cannot take a record back.

Both in one Spark session, warm, on the same records. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import headwater as hw
from headwater.process.keyed.lane import KeyedLane
from headwater.process.pipeline import Pipeline
from headwater.process.session import spark_session
from headwater.process.sql.planner import plan_view
from headwater.serve.follower import Follower

SQL = """
SELECT c.page, count(*) AS views, count(DISTINCT c.user_id) AS visitors, count(DISTINCT u.country) AS countries
FROM clicks c JOIN users u ON c.user_id = u.user_id GROUP BY c.page"""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Records:
    def __init__(self, users: int, pages: int) -> None:
        self._chance = np.random.default_rng(11)
        self.users, self.pages = users, pages
        self.countries = np.array([f"c{n:02}" for n in range(60)])

    def user_table(self) -> pa.Table:
        country = self.countries[self._chance.integers(0, len(self.countries), self.users)]
        return pa.table({"user_id": np.arange(self.users), "country": country})

    def clicks(self, count: int) -> pa.Table:
        page = np.char.add("/product/", self._chance.integers(0, self.pages, count).astype(str))
        at = pa.array(np.arange(count) + 1_767_225_600_000_000).cast(pa.timestamp("us", "UTC"))
        return pa.table({"user_id": self._chance.integers(0, self.users, count), "page": page, "at": at})


# --- ours ---------------------------------------------------------------------------------------------


class Ours:
    name = "headwater"

    def __init__(self, spark: Any, folder: Path, users: pa.Table) -> None:
        self._app = hw.App("bench", log=f"file:{folder / 'log'}")
        app = self._app
        self._clicks = app.topic(
            "clicks", {"user_id": "int64", "page": "string", "at": "timestamp"}, key="user_id", time="at"
        )
        self._users = app.topic("users", {"user_id": "int64", "country": "string"}, key="user_id", kind="table")
        self._users.append(users)
        self.view = app.view("by_page", sql=SQL)
        plan = plan_view("by_page", SQL, {topic.name: topic.spec for topic in app.topics.values()})
        self._pipeline = Pipeline(KeyedLane(plan), app.log, app.folder)
        self._pipeline.prepare()
        self._follower = Follower(app.log, "by_page", self._pipeline.producer, self.view.store)
        self._follower.start()
        self._pipeline.start(spark)

    def give(self, clicks: pa.Table) -> Callable[[], bool]:
        position = self._clicks.append(clicks)
        return lambda: self._done(position)

    def _done(self, position: hw.Position) -> bool:
        failure = self._pipeline.failure() or self._follower.failure
        if failure is not None:
            raise failure
        return self.view.covers(position)

    def answer(self) -> dict[str, tuple[int, ...]]:
        rows = self.view.read().to_pylist()
        return {row["page"]: (row["views"], row["visitors"], row["countries"]) for row in rows}

    def stop(self) -> None:
        self._pipeline.stop()
        self._follower.stop()


# --- the peer -----------------------------------------------------------------------------------------


def sets_in_a_value() -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class CountByPage(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.known = handle.getValueState("known", "views long, users array<long>, countries array<string>")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            views, users, countries = self.known.get() or (0, [], [])
            seen_users, seen_countries = set(users), set(countries)
            for frame in rows:
                views += len(frame)
                seen_users.update(frame["user_id"].tolist())
                seen_countries.update(frame["country"].tolist())
            self.known.update((views, list(seen_users), list(seen_countries)))
            sizes = {"visitors": [len(seen_users)], "countries": [len(seen_countries)]}
            yield pd.DataFrame({"page": [key[0]], "views": [views], **sizes})

        def close(self) -> None:
            pass

    return CountByPage()


def sets_in_maps() -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class CountByPage(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.counts = handle.getValueState("counts", "views long, visitors long, countries long")
            self.users = handle.getMapState("users", "id long", "seen boolean")
            self.countries = handle.getMapState("countries", "name string", "seen boolean")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            views, visitors, countries = self.counts.get() or (0, 0, 0)
            for frame in rows:
                views += len(frame)
                for user in frame["user_id"].unique().tolist():
                    if not self.users.containsKey((user,)):
                        self.users.updateValue((user,), (True,))
                        visitors += 1
                for country in frame["country"].unique().tolist():
                    if not self.countries.containsKey((country,)):
                        self.countries.updateValue((country,), (True,))
                        countries += 1
            self.counts.update((views, visitors, countries))
            yield pd.DataFrame({"page": [key[0]], "views": [views], "visitors": [visitors], "countries": [countries]})

        def close(self) -> None:
            pass

    return CountByPage()


class Peer:
    """A file counts as done when the batch that has read it has been through its foreachBatch."""

    def __init__(self, spark: Any, folder: Path, users: pa.Table, processor: Any) -> None:
        self._inbox = folder / "in"
        self._inbox.mkdir(parents=True)
        self._files = 0
        self._views: dict[str, tuple[int, ...]] = {}
        self._given = self._seen = 0
        static = spark.createDataFrame(users.to_pandas()).cache()
        static.count()
        clicks = spark.readStream.schema("user_id long, page string, at timestamp").json(str(self._inbox))
        self._query = (
            clicks.join(static, "user_id")
            .groupBy("page")
            .transformWithStateInPandas(
                processor, "page string, views long, visitors long, countries long", "Update", "None"
            )
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(self._note)
            .start()
        )

    def _note(self, frame: Any, batch: int) -> None:
        for row in frame.toArrow().to_pylist():
            before = self._views.get(row["page"], (0, 0, 0))
            self._views[row["page"]] = (row["views"], row["visitors"], row["countries"])
            self._seen += row["views"] - before[0]

    def give(self, clicks: pa.Table) -> Callable[[], bool]:
        part = self._inbox / f".{self._files}.part"
        clicks.to_pandas().to_json(part, orient="records", lines=True, date_format="iso", date_unit="us")
        part.rename(self._inbox / f"{self._files:08}.json")
        self._files += 1
        self._given += clicks.num_rows
        goal = self._given
        return lambda: self._done(goal)

    def _done(self, goal: int) -> bool:
        if self._query.exception() is not None:
            raise self._query.exception()
        return self._seen >= goal

    def answer(self) -> dict[str, tuple[int, ...]]:
        return dict(self._views)

    def stop(self) -> None:
        self._query.stop()


# --- measuring ----------------------------------------------------------------------------------------


def finish(done: Callable[[], bool], *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not through after {within_s} s")
        time.sleep(0.005)


def throughput(job: Any, records: Records, count: int) -> float:
    """Records a second for one load, after a load of the same size has warmed everything up."""
    finish(job.give(records.clicks(1000)), within_s=300)
    finish(job.give(records.clicks(count)), within_s=1800)
    clicks = records.clicks(count)
    start = time.monotonic()
    finish(job.give(clicks), within_s=1800)
    return count / (time.monotonic() - start)


def freshness(job: Any, records: Records, seconds: float) -> dict[str, float]:
    """From having a record in hand to its being in the view, at 1,000 records a second, ten loads a second."""
    waiting: list[tuple[float, Callable[[], bool]]] = []
    took: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not (over.is_set() and not waiting):
            now = time.monotonic()
            while waiting and waiting[0][1]():
                took.append(time.monotonic() - waiting.pop(0)[0])
            time.sleep(max(0.0, now + 0.005 - time.monotonic()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    start, sent = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        clicks = records.clicks(100)
        begun = time.monotonic()
        waiting.append((begun, job.give(clicks)))
        sent += 1
        time.sleep(max(0.0, start + sent / 10 - time.monotonic()))
    over.set()
    watcher.join(120)
    took = took[len(took) // 5 :]  # the first fifth warms up
    cuts = statistics.quantiles(took, n=100)
    return {"p50_s": round(cuts[49], 2), "p99_s": round(cuts[98], 2)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--users", type=int, default=100_000)
    options.add_argument("--pages", type=int, default=20_000)
    options.add_argument("--seconds", type=float, default=40, help="how long freshness is measured")
    given = options.parse_args()
    rates: dict[str, float] = {}
    fresh: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        spark = spark_session("bench", words=Path(folder) / "spark.log")
        makers: dict[str, Callable[[Path, pa.Table], Any]] = {
            "headwater": lambda at, users: Ours(spark, at, users),
            "pyspark, sets in a value": lambda at, users: Peer(spark, at, users, sets_in_a_value()),
            "pyspark, sets in maps": lambda at, users: Peer(spark, at, users, sets_in_maps()),
        }
        answers = {}
        for name, make in makers.items():
            records = Records(given.users, given.pages)  # the same records for each: same seed
            job = make(Path(folder) / name.replace(" ", "-").replace(",", ""), records.user_table())
            # Spark's MapState costs a round trip a value: a tenth of the records is enough to see its pace.
            count = given.records // 10 if "maps" in name else given.records
            rates[name] = throughput(job, records, count)
            answers[name] = (count, job.answer())
            say(f"{name}: {rates[name]:,.0f} records/s")
            fresh[name] = freshness(job, records, given.seconds)
            say(f"{name}: freshness {fresh[name]}")
            job.stop()
        same = answers["headwater"] == answers["pyspark, sets in a value"]
        spark.stop()
    assert same, "both must give the same view"
    peer = max((name for name in rates if name != "headwater"), key=lambda name: rates[name])
    print(
        json.dumps(
            {
                "bench": "thread",
                "unit": "records/s",
                "ours": round(rates["headwater"]),
                "peer": round(rates[peer]),
                "peer_name": peer,
                "ratio": round(rates["headwater"] / rates[peer], 2),
                "detail": {
                    "records_per_s": {name: round(rate) for name, rate in rates.items()},
                    "freshness_at_1k_per_s": fresh,
                    "records": given.records,
                    "users": given.users,
                    "pages": given.pages,
                    "same_answer": same,
                },
            }
        )
    )


if __name__ == "__main__":
    main()

"""The functions on frames, on streams, against DuckDB and plain Python."""

from __future__ import annotations

import inspect
import itertools
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

from headwater import clock, frames
from headwater.errors import BadFrame
from headwater.process.frames.types import spark_schema
from headwater.records import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Row = dict[str, Any]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CLICKS = schema_of({"id": "int64", "page": "string", "at": "timestamp", "took": "float64"})
SHOWN = schema_of({"page": "string", "at": "timestamp", "ad": "int64"})
LATE = 120
"""Seconds by which the made records are out of order at most: their lateness, so that none is too late."""


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def some_clicks(count: int, *, seed: int, pages: int = 4) -> list[Row]:
    """In the order of arrival: about one every two seconds, up to `LATE` seconds late. In whole seconds, so that times
    meet the edges of windows and gaps."""
    chance = random.Random(seed)
    moments = [2 * number + chance.randrange(-LATE // 2, LATE // 2) for number in range(count)]
    return [
        {
            "id": chance.randrange(count),
            "page": f"/{chance.randrange(pages)}" if chance.random() < 0.95 else None,
            "at": NOON + seconds(moment),
            "took": chance.lognormvariate(0, 1),
        }
        for moment in moments
    ]


class Streams:
    """A stream of given batches, one a trigger, and what a query over it appends."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self._folder, self._numbers = spark, folder, itertools.count()

    def of(self, *batches: list[Row], schema: pa.Schema = CLICKS) -> DataFrame:
        folder = self._folder / f"stream{next(self._numbers)}"
        folder.mkdir()
        for number, rows in enumerate(batches):
            file = folder / f"{number}.parquet"
            pq.write_table(pa.Table.from_pylist(rows, schema), file)
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes them in this order
        made = self.spark.readStream.schema(spark_schema(schema)).option("maxFilesPerTrigger", 1).parquet(str(folder))
        return made

    def closed(self, rows: list[Row], *, schema: pa.Schema = CLICKS) -> DataFrame:
        """Two batches, then one record long after: it closes every window and lets every lonely row go."""
        half = len(rows) // 2
        last = dict.fromkeys(schema.names) | {"at": NOON + timedelta(days=9), "page": "last"}
        return self.of(rows[:half], rows[half:], [last], schema=schema)

    def run(self, frame: DataFrame, mode: str = "append") -> list[Row]:
        name = f"sink{next(self._numbers)}_{os.getpid()}"
        writer = frame.writeStream.format("memory").queryName(name).outputMode(mode).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self._folder / name)).start().awaitTermination()
        return [row.asDict() for row in self.spark.table(name).collect()]


@pytest.fixture(autouse=True)
def one_partition(spark: SparkSession) -> Iterator[None]:
    """Half the state stores, half the time; what is tested here does not depend on their number."""
    usual = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", usual)


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)


def timely(frame: DataFrame) -> DataFrame:
    return frames.event_time(frame, "at", lateness=f"{LATE} seconds")


def values(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    """As a bag; Spark gives times without a zone, in the one of this process."""
    return Counter(tuple(_plain(value) for value in row.values()) for row in rows)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def duck(sql: str, clicks: list[Row]) -> list[Row]:
    table = pa.Table.from_pylist([row | {"at": row["at"].replace(tzinfo=None)} for row in clicks])  # it is in UTC
    with duckdb.connect(":memory:") as connection:
        connection.register("clicks", table)
        found = connection.sql(sql).to_arrow_table().to_pylist()
    return [row | {"s": row["s"].replace(tzinfo=UTC), "e": row["e"].replace(tzinfo=UTC)} for row in found]


def local(spark: SparkSession, rows: list[Row], columns: dict[str, str]) -> DataFrame:
    """A frame of a few rows, by way of Arrow: without a Python worker."""
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema_of(columns)))


# --- windows ---

TUMBLING = """
SELECT time_bucket(INTERVAL 1 minute, "at") AS s, s + INTERVAL 1 minute AS e, page, count(*) AS n
FROM clicks GROUP BY ALL"""
HOPPING = """
SELECT s, s + INTERVAL 3 minutes AS e, page, count(*) AS n
FROM (SELECT page, unnest(generate_series(0, 2)) AS k, time_bucket(INTERVAL 1 minute, "at") - k * INTERVAL 1 minute AS s
      FROM clicks)
GROUP BY ALL"""
SESSION = """
SELECT min("at") AS s, max("at") + INTERVAL 20 seconds AS e, page, count(*) AS n
FROM (SELECT *, sum(opens::INT) OVER (PARTITION BY page ORDER BY "at" RANGE UNBOUNDED PRECEDING) AS number
      FROM (SELECT *, ("at" - lag("at") OVER each_page <= INTERVAL 20 seconds) IS NOT TRUE AS opens
            FROM clicks WINDOW each_page AS (PARTITION BY page ORDER BY "at")))
GROUP BY page, number"""


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "session"])
def test_windows_of_a_stream_are_those_of_duckdb(streams: Streams, kind: str) -> None:
    grouping, sql = {
        "tumbling": (lambda: frames.tumbling("at", "1 minute"), TUMBLING),
        "hopping": (lambda: frames.hopping("at", "3 minutes", every="1 minute"), HOPPING),
        "session": (lambda: frames.session("at", gap="20 seconds"), SESSION),
    }[kind]
    clicks = some_clicks(300, seed=1)
    counted = timely(streams.closed(clicks)).groupBy(grouping(), "page").count()
    made = frames.flat_window(counted)
    assert made.columns == ["window_start", "window_end", "page", "count"]
    assert values(streams.run(made)) == values(duck(sql, clicks))


def test_what_cannot_be_a_window_is_refused(streams: Streams) -> None:
    clicks = streams.of()
    with pytest.raises(BadFrame, match="leave records between them out"):
        frames.hopping("at", "1 minute", every="2 minutes")
    with pytest.raises(BadFrame, match="size='1 month' is not a length of time"):
        frames.tumbling("at", "1 month")
    with pytest.raises(BadFrame, match="the frame has no column 'window'. Columns there: id, page"):
        frames.flat_window(clicks)
    with pytest.raises(BadFrame, match="column 'page' is string, not a window"):
        frames.flat_window(clicks, "page")


def test_the_documents_functions_are_accepted_by_spark(streams: Streams) -> None:
    text = (Path(__file__).parents[2] / "docs" / "frames.md").read_text()
    named: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(block, named)

    def stream(**columns: str) -> DataFrame:
        return streams.of(schema=schema_of({name: kind for name, kind in columns.items() if name[0] != "_"}))

    clicks = stream(at="timestamp", page="string", user_id="int64", took_ms="float64")
    device = stream(happened="timestamp", sent="timestamp", received="timestamp").withColumnRenamed(
        "received", "_appended_at"
    )
    minutes, seen = named["visitors_by_minute"](clicks), named["known_users"](clicks)
    columns = {
        "busy_pages": named["busy_pages"](clicks),
        "readings_by_our_clock": named["readings_by_our_clock"](device),
        "visits": named["visits"](clicks),
        "bought_after_seen": named["bought_after_seen"](clicks, stream(user_id="int64", at="timestamp", sum="float64")),
        "once": named["once"](stream(payment_id="string", at="timestamp")),
        "visitors_by_minute": minutes,
        "today": named["today"](minutes),
        "known_users": seen,
        "newcomers": named["newcomers"](clicks, seen),
        "parsed": named["parsed"](stream(line="string", at="timestamp")),
    }
    assert set(columns) == {name for name, value in named.items() if inspect.isfunction(value)}
    assert columns["busy_pages"].columns == ["window_start", "window_end", "page", "count"]
    assert columns["bought_after_seen"].columns == ["user_id", "at", "page", "took_ms", "right_at", "sum"]
    assert columns["parsed"].columns == ["name", "amount", "at", "_error", "_record"]


# --- event time ---


def test_what_cannot_be_an_event_time_is_refused(streams: Streams) -> None:
    clicks = streams.of()
    with pytest.raises(BadFrame, match="the frame has no column 'att'. Columns there: id, page, at, took"):
        frames.event_time(clicks, "att", lateness="1 minute")
    with pytest.raises(BadFrame, match="column 'page' of the frame is string, not timestamp. Cast it"):
        frames.event_time(clicks, "page", lateness="1 minute")
    with pytest.raises(BadFrame, match="lateness='soon' is not a length of time"):
        frames.event_time(clicks, "at", lateness="soon")
    with pytest.raises(BadFrame, match="the frame has its event time already: at"):
        timely(timely(clicks).where("id > 1"))


def test_clocks_of_devices_are_put_right_in_columns_as_in_values(spark: SparkSession) -> None:
    chance = random.Random(3)
    given = [
        (NOON + seconds(chance.uniform(-9e6, 9e6)), NOON + seconds(chance.uniform(-9e6, 9e6)), NOON) for _ in range(50)
    ]
    given += [(NOON - seconds(5), None, NOON), (NOON + seconds(5), None, NOON)]
    columns = dict.fromkeys(("happened", "sent", "received"), "timestamp")
    frame = local(spark, [dict(zip(columns, row, strict=True)) for row in [*given, (None, NOON, NOON)]], columns)
    made = frame.select(frames.corrected("happened", "sent", frame.received).alias("at")).collect()
    assert [_plain(row["at"]) for row in made] == [*(clock.corrected(*row) for row in given), None]


# --- joins ---


def some_shown(count: int) -> list[Row]:
    return [
        {"page": row["page"], "at": row["at"], "ad": number}
        for number, row in enumerate(some_clicks(count, seed=5, pages=6))
    ]


def nested_loop(clicks: list[Row], shown: list[Row], how: str, within: timedelta) -> list[Row]:
    pairs = [
        (left, right)
        for left in clicks
        for right in shown
        if left["page"] is not None and left["page"] == right["page"] and abs(left["at"] - right["at"]) <= within
    ]
    met = {id(row) for pair in pairs for row in pair}
    lonely_left = [(left, None) for left in clicks if id(left) not in met and how in ("left", "full")]
    lonely_right = [(None, right) for right in shown if id(right) not in met and how in ("right", "full")]
    none: Row = {}
    return [
        {
            "page": (left or right or none)["page"],
            "id": (left or none).get("id"),
            "at": (left or none).get("at"),
            "took": (left or none).get("took"),
            "right_at": (right or none).get("at"),
            "ad": (right or none).get("ad"),
        }
        for left, right in [*pairs, *lonely_left, *lonely_right]
    ]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_join_within_an_interval_is_that_of_a_nested_loop(streams: Streams, how: Any) -> None:
    clicks, shown = some_clicks(90, seed=4, pages=6), some_shown(60)
    left, right = timely(streams.closed(clicks)), timely(streams.closed(shown, schema=SHOWN))
    joined = frames.join_within(left, right, on="page", within="10 seconds", how=how)
    found = [row for row in streams.run(joined) if row["page"] != "last"]  # the two that close it, which met
    expected = nested_loop(clicks, shown, how, seconds(10))
    assert list(found[0]) == list(expected[0])
    assert values(found) == values(expected)


def test_a_join_goes_on_into_windows_and_both_sides_may_be_one_topic(streams: Streams) -> None:
    clicks = some_clicks(60, seed=6)
    stream = timely(streams.closed(clicks))
    pairs = frames.join_within(stream, stream, on=["page"], within="5 seconds", left_time="at", right_time="at")
    counted = pairs.groupBy(frames.tumbling("at", "1 minute")).count()
    expected = Counter(
        left["at"].replace(second=0)
        for left in clicks
        for right in clicks
        if left["page"] and left["page"] == right["page"] and abs(left["at"] - right["at"]) <= seconds(5)
    )
    made = streams.run(frames.flat_window(counted))
    assert {_plain(row["window_start"]): row["count"] for row in made} == expected


def test_a_join_that_would_never_forget_is_refused(streams: Streams) -> None:
    clicks, shown = streams.of(), streams.of(schema=SHOWN)
    with pytest.raises(BadFrame, match=r"the right frame streams without a watermark. Say .*event_time\(right, "):
        frames.join_within(timely(clicks), shown, on="page", within="1 minute")
    with pytest.raises(BadFrame, match="the left frame streams without a watermark on 'at'"):
        frames.join_within(clicks, timely(shown), on="page", within="1 minute", left_time="at")
    with pytest.raises(BadFrame, match="the right frame has no column 'id'"):
        frames.join_within(timely(clicks), timely(shown), on="id", within="1 minute")
    with pytest.raises(BadFrame, match="how='outer' is not a way to join. Use one of inner, left, right, full"):
        frames.join_within(timely(clicks), timely(shown), on="page", within="1 minute", how="outer")  # type: ignore[arg-type]
    with pytest.raises(BadFrame, match="'at' and 'right_at' are both taken"):
        frames.join_within(
            timely(clicks.withColumnRenamed("took", "right_at")), timely(shown), on="page", within="1 minute"
        )


# --- dedup ---


def test_a_repeated_record_is_left_out_within_the_time_and_counts_again_long_after(streams: Streams) -> None:
    def click(number: int, at: float) -> Row:
        return {"id": number, "page": "/", "at": NOON + seconds(at), "took": None}

    first = [click(1, 0), click(1, 1), click(2, 5), click(3, 50)]
    second = [click(2, 30), click(1, 59), click(4, 10), click(4, 10)]
    third, fourth = [click(9, 1000)], [click(9, 1001)]  # at whose end 1, 2, 3 and 4 are forgotten
    fifth = [click(1, 1000), click(2, 1010), click(9, 1040)]
    made = frames.dedup(streams.of(first, second, third, fourth, fifth), ["id"], within="1 minute", time="at")
    found = Counter(row["id"] for row in streams.run(made))
    assert found == {1: 2, 2: 2, 3: 1, 4: 1, 9: 1}


def test_what_dedup_cannot_do_is_refused(spark: SparkSession, streams: Streams) -> None:
    clicks = streams.of()
    with pytest.raises(BadFrame, match="the frame waits for 'at' by 120000 ms, dedup for 'at' by '1 hour'"):
        frames.dedup(timely(clicks), "id", within="1 hour", time="at")
    with pytest.raises(BadFrame, match="does not stream"):
        frames.dedup(spark.createDataFrame(CLICKS.empty_table()), "id", within="1 hour", time="at")
    with pytest.raises(BadFrame, match="has no column 'idd'"):
        frames.dedup(clicks, ["id", "idd"], within="1 hour", time="at")


# --- sketches and Bloom filters ---

SMALL = {"expected": 500, "false_positives": 0.01}


SKETCHES = dict.fromkeys(("ids", "times", "set", "bloom"), "binary")


def sketched(grouped: Any) -> DataFrame:
    made: DataFrame = grouped.agg(
        frames.distinct_sketch("id").alias("ids"),
        frames.quantile_sketch("took").alias("times"),
        frames.set_sketch("id").alias("set"),
        frames.bloom_filter("id", **SMALL).alias("bloom"),
    )
    return made


def merged(parts: DataFrame) -> DataFrame:
    return parts.agg(
        frames.distinct_merge("ids").alias("ids"),
        frames.quantile_merge("times").alias("times"),
        frames.set_merge("set").alias("set"),
        frames.bloom_merge("bloom", **SMALL).alias("bloom"),
    )


def check_sketches(spark: SparkSession, sketches: list[Row], clicks_of: Callable[[Row], list[Row]]) -> None:
    """Each row's sketches against the records they stand for."""
    told = local(spark, [{name: row[name] for name in SKETCHES} for row in sketches], SKETCHES).select(
        frames.distinct_estimate("ids").alias("distinct"),
        frames.set_estimate("set").alias("size"),
        frames.quantile_count("times").alias("count"),
        frames.quantile_estimate("times", 0.9).alias("slow"),
        frames.quantile_rank("times", 1.0).alias("below_one"),
    )
    for row, answer in zip(sketches, told.collect(), strict=True):
        clicks = clicks_of(row)
        ids, times = {click["id"] for click in clicks}, [click["took"] for click in clicks]
        assert answer["distinct"] == pytest.approx(len(ids), rel=0.05)  # three standard deviations
        assert answer["size"] == len(ids)  # exact while they fit
        assert answer["count"] == len(times)
        assert sum(time <= answer["slow"] for time in times) / len(times) == pytest.approx(0.9, abs=0.03)
        assert answer["below_one"] == pytest.approx(sum(time <= 1.0 for time in times) / len(times), abs=0.03)
        asked = local(
            spark, [{"id": number, "bloom": row["bloom"]} for number in ids], {"id": "int64", "bloom": "binary"}
        )
        assert asked.where(~frames.might_contain("bloom", "id")).count() == 0


def test_sketches_of_windows_answer_for_their_window_and_merged_for_the_whole(streams: Streams) -> None:
    clicks = [row | {"page": "/"} for row in some_clicks(400, seed=8)]
    windows = sketched(timely(streams.closed(clicks)).groupBy(frames.tumbling("at", "5 minutes")))
    rows = streams.run(frames.flat_window(windows))
    assert len(rows) > 2
    start_of = {_plain(row["window_start"]) for row in rows}

    def of_window(row: Row) -> list[Row]:
        start = _plain(row["window_start"])
        return [click for click in clicks if start <= click["at"] < start + seconds(300)]

    assert sum(len(of_window({"window_start": start})) for start in start_of) == len(clicks)
    check_sketches(streams.spark, rows[:2], of_window)
    parts = local(streams.spark, [{name: row[name] for name in SKETCHES} for row in rows], SKETCHES)
    (whole,) = [row.asDict() for row in merged(parts).collect()]
    check_sketches(streams.spark, [whole], lambda _: clicks)
    at_once = local(streams.spark, [{"id": click["id"]} for click in clicks], {"id": "int64"})
    (one,) = at_once.agg(frames.bloom_filter("id", **SMALL)).collect()
    assert bytes(one[0]) == bytes(whole["bloom"])


def test_sketches_are_updated_as_records_come(streams: Streams) -> None:
    clicks = some_clicks(200, seed=9, pages=2)
    rows = streams.run(sketched(streams.of(clicks[:120], clicks[120:]).groupBy("page")), "update")
    last = {row["page"]: row for row in rows}  # of each page the first batch's row, then the second's
    assert len(rows) > len(last)
    check_sketches(streams.spark, list(last.values()), lambda row: [c for c in clicks if c["page"] == row["page"]])


def test_estimates_of_many_values_stay_within_their_bounds(spark: SparkSession) -> None:
    many = spark.range(120_000).selectExpr("id", "id % 3 AS part", "id % 50000 AS a", "25000 + id % 50000 AS b")
    parts = many.groupBy("part").agg(
        frames.distinct_sketch("id").alias("ids"),
        frames.quantile_sketch("id").alias("times"),
        frames.set_sketch("a").alias("a"),
        frames.set_sketch("b").alias("b"),
    )
    whole = parts.agg(
        frames.distinct_merge("ids").alias("ids"),
        frames.quantile_merge("times").alias("times"),
        frames.set_merge("a").alias("a"),
        frames.set_merge("b").alias("b"),
    )
    (told,) = whole.select(
        frames.distinct_estimate("ids").alias("ids"),
        frames.quantile_estimate("times", 0.25).alias("quarter"),
        frames.set_estimate(frames.set_union("a", "b")).alias("either"),
        frames.set_estimate(frames.set_intersection("a", "b")).alias("both"),
        frames.set_estimate(frames.set_difference("a", "b")).alias("only_a"),
    ).collect()
    assert told["ids"] == pytest.approx(120_000, rel=0.05)
    assert told["quarter"] == pytest.approx(30_000, abs=120_000 * 0.03)
    assert told["either"] == pytest.approx(75_000, rel=0.05)
    assert told["both"] == pytest.approx(25_000, abs=75_000 * 0.05)
    assert told["only_a"] == pytest.approx(25_000, abs=75_000 * 0.05)


def test_sketches_of_nothing_answer_and_do_not_stop_the_query(spark: SparkSession) -> None:
    nothing = local(spark, [{"id": None, "took": None}], {"id": "int64", "took": "float64"})
    (told,) = (
        sketched(nothing.groupBy())
        .select(
            frames.distinct_estimate("ids"),
            frames.set_estimate("set"),
            frames.quantile_count("times"),
            frames.quantile_estimate("times", 0.5),
            frames.quantile_rank("times", 1.0),
        )
        .collect()
    )
    assert tuple(told) == (0, 0, 0, None, None)
    with pytest.raises(BadFrame, match="at=50 is not a share"):
        frames.quantile_estimate("times", 50)
    with pytest.raises(BadFrame, match="bits=30 is not possible. Use 4 to 21"):
        frames.distinct_sketch("id", bits=30)


@pytest.mark.parametrize(("expected", "rate"), [(300, 0.001), (10_000, 0.01), (30_000, 0.25)])
def test_a_bloom_filter_never_says_no_wrongly_and_yes_as_seldom_as_it_says(
    spark: SparkSession, expected: int, rate: float
) -> None:
    size = {"expected": expected, "false_positives": rate}
    there = spark.range(expected).selectExpr("concat('user ', id) AS who", "id % 2 AS part")
    parts = there.groupBy("part").agg(frames.bloom_filter("who", **size).alias("bloom"))  # type: ignore[arg-type]
    bloom = parts.agg(frames.bloom_merge("bloom", **size)).collect()[0][0]  # type: ignore[arg-type]
    asked = 10_000
    probes = spark.range(expected + asked).selectExpr("id", "concat('user ', id) AS who")
    said = probes.where(frames.might_contain(functions.lit(bytes(bloom)), "who")).selectExpr(
        f"count_if(id < {expected}) AS right", f"count_if(id >= {expected}) AS wrong"
    )
    ((right, wrong),) = said.collect()
    assert right == expected
    deviation = (rate * (1 - rate) * asked) ** 0.5
    assert wrong <= rate * asked + 4 * deviation
    assert wrong >= rate * asked / 3  # the filter is not larger than it needs to be


def test_a_bloom_filter_knows_a_value_by_its_text_and_nothing_of_null(spark: SparkSession) -> None:
    size = {"expected": 10, "false_positives": 0.0001}
    row = spark.sql("SELECT * FROM VALUES (7), (NULL) AS t(id)").agg(frames.bloom_filter("id", **size).alias("bloom"))  # type: ignore[arg-type]
    told = row.select(
        *(
            frames.might_contain("bloom", value).alias(str(place))
            for place, value in enumerate(_literals("7", "7L", "'7'", "8", "NULL"))
        ),
        *(frames.might_contain(empty, empty).alias("of null") for empty in _literals("CAST(NULL AS BINARY)")),
    )
    assert [tuple(row) for row in told.collect()] == [(True, True, True, False, None, None)]


def test_filters_of_another_size_do_not_merge_and_foreign_bytes_are_no_filter(spark: SparkSession) -> None:
    one = spark.range(3).agg(frames.bloom_filter("id", expected=100).alias("bloom"))
    with pytest.raises(PySparkException, match="bloom_merge: a filter made with another expected"):
        one.agg(frames.bloom_merge("bloom", expected=1000)).collect()
    with pytest.raises(PySparkException, match="might_contain: the column is not one of"):
        spark.sql("SELECT x'00010203040506' AS b, 1 AS id").select(frames.might_contain("b", "id")).collect()


def _literals(*texts: str) -> list[Any]:
    return [functions.expr(text) for text in texts]


# --- attempts ---


def test_one_bad_record_does_not_stop_the_stream(streams: Streams) -> None:
    def halves(record: Row) -> Any:
        if record["page"] is None:
            return None
        if record["id"] % 7 == 0:
            raise ValueError(f"no {record['id']}")
        return [{"half": record["id"] / 2, "at": record["at"], "tags": [record["page"]]}] * (record["id"] % 3)

    clicks = some_clicks(100, seed=11)
    columns = {"half": "float64", "at": "timestamp", "tags": "list<string>"}
    made = frames.attempt(streams.of(clicks[:50], clicks[50:]), halves, columns)
    rows = streams.run(made)
    good = [row for row in rows if row["_error"] is None]
    expected = [
        (row["id"] / 2, row["at"], row["page"])
        for row in clicks
        if row["page"] and row["id"] % 7
        for _ in range(row["id"] % 3)
    ]
    assert Counter((row["half"], _plain(row["at"]), row["tags"][0]) for row in good) == Counter(expected)
    bad = [row for row in rows if row["_error"] is not None]
    assert Counter(row["_error"].partition(" (")[0] for row in bad) == Counter(
        f"ValueError: no {row['id']}" for row in clicks if row["page"] and row["id"] % 7 == 0
    )
    assert all(row["half"] is None and row["tags"] is None and '"took":' in row["_record"] for row in bad)
    assert all("test_frames_functions.py, line" in row["_error"] for row in bad)

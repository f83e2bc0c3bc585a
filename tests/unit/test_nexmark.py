"""Nexmark's generator, and that the answers it is meant for exist: each query's oracle finds rows."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.testing.nexmark.events import FIRST_ID, HOT_CHANNELS, IN_FLIGHT, LEAD, TOPICS, events, tables
from headwater.testing.nexmark.queries import QUERIES, Query

EVENTS = 20_000
RATE = 1_000
"""Twenty seconds: some windows, and sessions that end before the events do."""


@pytest.fixture(scope="module")
def auctions() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in tables(EVENTS, rate=RATE).items():
        connection.register(name, table)
    return connection


def _rows(answer: duckdb.DuckDBPyRelation) -> Counter[tuple[object, ...]]:
    return Counter(answer.fetchall())


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    made = tables(EVENTS)
    assert {name: made[name].num_rows for name in ("person", "auction", "bid")} == {
        "person": EVENTS // 50,
        "auction": EVENTS * 3 // 50,
        "bid": EVENTS * 46 // 50,
    }
    assert {name: table.schema for name, table in made.items()} == TOPICS


@pytest.mark.parametrize("block", [7, 50, 1_234, 50_000, 60_000, 1_000_000])
def test_events_are_the_same_however_they_are_cut(block: int) -> None:
    count = 500 if block < 50 else 120_007
    whole, blocks = tables(count), list(events(count, block=block))
    assert [each.first for each in blocks] == list(range(0, count, block))
    assert blocks[-1].end == count
    for name in ("person", "auction", "bid"):
        assert pa.concat_tables(getattr(each, name) for each in blocks).equals(whole[name])


def test_a_seed_makes_the_events() -> None:
    assert tables(5_000, seed=3)["bid"].equals(tables(5_000, seed=3)["bid"])
    assert not tables(5_000, seed=3)["bid"].equals(tables(5_000, seed=4)["bid"])


def test_chunks_differ_from_one_another() -> None:
    bids = tables(100_000)["bid"]
    half = bids.num_rows // 2
    assert not bids["extra"].slice(0, half).equals(bids["extra"].slice(half))


def test_times_never_run_back_and_keep_the_rate() -> None:
    for name in ("person", "auction", "bid"):
        times = tables(EVENTS, rate=RATE)[name]["date_time"].cast(pa.int64()).to_numpy()
        assert (times[1:] >= times[:-1]).all()
        assert (times % 1_000 == 0).all()
        assert 19_900_000 < times[-1] - times[0] <= 20_000_000


def test_references_are_to_what_exists_or_is_about_to(auctions: duckdb.DuckDBPyConnection) -> None:
    newest = "(SELECT max(id) AS id, date_time FROM auction GROUP BY date_time)"
    ahead = f"SELECT b.auction - a.id AS ahead FROM bid b ASOF JOIN {newest} a ON a.date_time <= b.date_time"
    assert auctions.sql(f"SELECT min(ahead), max(ahead) FROM ({ahead})").fetchall() == [(-IN_FLIGHT, LEAD)]
    orphans = "SELECT count(*) FROM {} WHERE {} NOT IN (SELECT id FROM {}) AND {} <= (SELECT max(id) FROM {})"
    for table, column, of in (
        ("bid", "auction", "auction"),
        ("bid", "bidder", "person"),
        ("auction", "seller", "person"),
    ):
        assert auctions.sql(orphans.format(table, column, of, column, of)).fetchall() == [(0,)]
        assert auctions.sql(f"SELECT min({column}) >= {FIRST_ID} FROM {table}").fetchall() == [(True,)]


def test_hot_ones_have_their_shares(auctions: duckdb.DuckDBPyConnection) -> None:
    hot = dict(
        auctions.sql("SELECT channel, count(*) FROM bid WHERE channel NOT LIKE 'channel-%' GROUP BY ALL").fetchall()
    )
    assert set(hot) == set(HOT_CHANNELS)
    bids = auctions.sql("SELECT count(*) FROM bid").fetchall()[0][0]
    assert 0.48 < sum(hot.values()) / bids < 0.52
    (bidders, targets) = auctions.sql(
        "SELECT avg((bidder % 100 = 1)::INT), avg((auction % 100 = 0)::INT) FROM bid"
    ).fetchall()[0]
    assert 0.74 < bidders < 0.78
    assert 0.49 < targets < 0.53
    ((sellers,),) = auctions.sql("SELECT avg((seller % 100 = 0)::INT) FROM auction").fetchall()
    assert 0.72 < sellers < 0.80


def test_auctions_are_open_for_a_while() -> None:
    auction = tables(EVENTS, rate=RATE)["auction"]
    open_us = pc.subtract(auction["expires"].cast(pa.int64()), auction["date_time"].cast(pa.int64()))
    assert 0 < pc.min(open_us).as_py() < 100_000
    assert 3_000_000 < pc.max(open_us).as_py() < 3_400_000


def test_all_queries_are_there() -> None:
    assert list(QUERIES) == [f"q{number}" for number in range(23)]
    assert [query.name for query in QUERIES.values() if query.flink is None] == ["q6"]


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_the_oracle_finds_rows_and_its_key_tells_them_apart(query: Query, auctions: duckdb.DuckDBPyConnection) -> None:
    answer = auctions.sql(query.oracle).to_arrow_table()
    assert answer.num_rows > 0
    if query.key:
        assert answer.group_by(list(query.key)).aggregate([]).num_rows == answer.num_rows


@pytest.mark.parametrize("name", ["q6", "q9", "q18", "q19"])
def test_the_order_of_the_rows_does_not_change_the_answer(name: str, auctions: duckdb.DuckDBPyConnection) -> None:
    """With a thousand times the rate: many bids fall into one millisecond, so that ties are there to be broken."""
    made = tables(EVENTS, rate=RATE * 1_000)
    answers = []
    for direction in (1, -1):
        connection = duckdb.connect()
        for topic, table in made.items():
            connection.register(topic, table.take(pa.array(range(table.num_rows))[::direction]))
        answers.append(_rows(connection.sql(QUERIES[name].oracle)))
    assert answers[0] == answers[1]

"""Each Nexmark query as a view, batch by batch, is the oracle's answer over all events: windows written out by hand."""

from __future__ import annotations

from functools import lru_cache

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from headwater.log import TopicSpec
from headwater.process.sql.planner import plan_view
from headwater.testing import PlanBench
from headwater.testing.nexmark.events import TOPICS, events, side_input
from headwater.testing.nexmark.queries import QUERIES
from tests.property.changes import bag

EVENTS, BLOCK, RATE = 9_000, 3_000, 400
SPECS = {
    name: TopicSpec(name, schema, key=("key",), kind="table")
    if name == "side_input"
    else TopicSpec(name, schema, time="date_time")
    for name, schema in TOPICS.items()
}


@lru_cache(maxsize=1)
def batches() -> list[dict[str, pa.Table]]:
    side = side_input()
    first = {"side_input": side.append_column("_weight", pa.array(np.ones(side.num_rows, np.int64)))}
    rest = [
        {"person": block.person, "auction": block.auction, "bid": block.bid}
        for block in events(EVENTS, rate=RATE, block=BLOCK)
    ]
    return [{**first, **rest[0]}, *rest[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_the_view_is_the_oracles_answer(name: str) -> None:
    query = QUERIES[name]
    plan = plan_view(name, query.sql, SPECS, key=query.key or None)
    bench = PlanBench(plan)
    for batch in batches():
        bench.push(batch)
    view = bench.view()
    weights = view["_weight"].to_numpy()
    found = view.drop_columns(["_weight"]).take(np.repeat(np.arange(len(weights)), weights))
    oracle = duckdb.connect()
    oracle.execute("SET TimeZone = 'UTC'")
    for topic in ("person", "auction", "bid"):
        oracle.register(topic, pa.concat_tables([batch[topic] for batch in batches()]))
    oracle.register("side_input", side_input())
    expected = oracle.sql(query.oracle).to_arrow_table().cast(plan.schema)
    assert expected.num_rows > 0
    assert bag(found) == bag(expected)

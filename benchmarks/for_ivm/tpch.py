"""Three tables of TPC-H in its proportions, with its sparse keys of orders: what nations order, month by month.

Every order has four items, the average of TPC-H's one to seven; money is in cents, discounts are in per cent. A round
is of its refresh functions: 99 old orders go with their items, 99 new ones come; and five customers move to another
nation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from for_ivm.workload import Workload, some, weighted
from headwater.log import TopicSpec
from headwater.records import schema_of

SQL = """
SELECT c.nationkey, date_trunc('month', o.orderdate) AS month,
       count(*) AS items, sum(l.extendedprice * (100 - l.discount)) AS revenue, max(l.extendedprice) AS dearest
FROM lineitem l JOIN orders o ON l.orderkey = o.orderkey JOIN customer c ON o.custkey = c.custkey
GROUP BY c.nationkey, date_trunc('month', o.orderdate)"""
SPECS = {
    "customer": TopicSpec(
        "customer",
        schema_of({"custkey": "int64", "nationkey": "int32", "mktsegment": "string"}),
        key=("custkey",),
        kind="table",
    ),
    "orders": TopicSpec(
        "orders",
        schema_of({"orderkey": "int64", "custkey": "int64", "orderdate": "date", "orderpriority": "string"}),
        key=("orderkey",),
        kind="table",
    ),
    "lineitem": TopicSpec(
        "lineitem",
        schema_of({"orderkey": "int64", "linenumber": "int32", "extendedprice": "int64", "discount": "int64"}),
        key=("orderkey", "linenumber"),
        kind="table",
    ),
}
SEGMENTS = np.array(["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"])
PRIORITIES = np.array(["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"])
NATIONS = 25
FIRST_DAY, DAYS = 8035, 2406  # 1992-01-01 to 1998-08-02
ITEMS = 4
REFRESHED = 99
MOVING = 5


class Tpch:
    """An order that goes leaves its place, and those of its items, to a new one."""

    def __init__(self, rows: int) -> None:
        self._chance = np.random.default_rng(7)
        orders = rows * 1_500 // 7_650
        self._customers = orders // 10
        self._next = 0
        self._customer = {
            "custkey": np.arange(1, self._customers + 1),
            "nationkey": some(self._chance, self._customers, NATIONS).astype(np.int32),
            "mktsegment": SEGMENTS[some(self._chance, self._customers, len(SEGMENTS))],
        }
        self._orders, self._lineitem = self._ordered(orders)

    def tables(self) -> Mapping[str, pa.Table]:
        columns = {"customer": self._customer, "orders": self._orders, "lineitem": self._lineitem}
        return {name: _table(name, each) for name, each in columns.items()}

    def changes(self) -> Mapping[str, pa.Table]:
        places = self._chance.choice(len(self._orders["orderkey"]), REFRESHED, replace=False)
        items = (places[:, None] * ITEMS + np.arange(ITEMS)).ravel()
        orders, lineitem = self._ordered(REFRESHED)
        moving = self._chance.choice(self._customers, MOVING, replace=False)
        nation = (self._customer["nationkey"][moving] + 1 + some(self._chance, MOVING, NATIONS - 1)) % NATIONS
        return {
            "orders": _changed("orders", self._orders, places, orders),
            "lineitem": _changed("lineitem", self._lineitem, items, lineitem),
            "customer": _changed("customer", self._customer, moving, {"nationkey": nation.astype(np.int32)}),
        }

    def _ordered(self, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
        numbers = np.arange(self._next, self._next + count)
        self._next += count
        keys = numbers // 8 * 32 + numbers % 8 + 1
        orders = {
            "orderkey": keys,
            "custkey": some(self._chance, count, self._customers) + 1,
            "orderdate": (FIRST_DAY + some(self._chance, count, DAYS)).astype(np.int32),
            "orderpriority": PRIORITIES[some(self._chance, count, len(PRIORITIES))],
        }
        lineitem = {
            "orderkey": np.repeat(keys, ITEMS),
            "linenumber": np.tile(np.arange(1, ITEMS + 1, dtype=np.int32), count),
            "extendedprice": 90_000 + some(self._chance, count * ITEMS, 10_400_000),
            "discount": some(self._chance, count * ITEMS, 11),
        }
        return orders, lineitem


def _changed(name: str, columns: dict[str, Any], places: Any, new: Mapping[str, Any]) -> pa.Table:
    old = _table(name, {each: values[places] for each, values in columns.items()})
    for each, values in new.items():
        columns[each][places] = values
    return weighted(old, _table(name, {each: values[places] for each, values in columns.items()}))


def _table(name: str, columns: Mapping[str, Any]) -> pa.Table:
    schema = SPECS[name].schema
    return pa.table({each: pa.array(values).cast(schema.field(each).type) for each, values in columns.items()})


TPCH = Workload(SQL, "nationkey, month, items, revenue, dearest", SPECS, Tpch)

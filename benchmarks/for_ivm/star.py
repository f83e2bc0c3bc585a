"""Orders with two small tables whose keys are 0, 1, 2 and so on: the best case for DuckDB, which finds such rows by
their number alone, without a hash table.

Nine of ten rows are orders. A round changes the amounts of 499 of them, and the region of one customer.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from for_ivm.workload import Workload, some, weighted
from headwater.log import TopicSpec
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


class Star:
    def __init__(self, rows: int) -> None:
        self._chance = np.random.default_rng(7)
        few = rows // 20
        many = rows - 2 * few
        self._columns = {
            "customers": {"customer": np.arange(few), "region": some(self._chance, few, 50).astype(np.int32)},
            "products": {"product": np.arange(few), "category": some(self._chance, few, 100).astype(np.int32)},
            "orders": {
                "id": np.arange(many),
                "customer": some(self._chance, many, few),
                "product": some(self._chance, many, few),
                "amount": some(self._chance, many, 100_000),
            },
        }

    def tables(self) -> Mapping[str, pa.Table]:
        return {name: pa.table(columns) for name, columns in self._columns.items()}

    def changes(self) -> Mapping[str, pa.Table]:
        return {
            "orders": self._changed("orders", "amount", 499, 100_000),
            "customers": self._changed("customers", "region", 1, 50),
        }

    def _changed(self, name: str, column: str, count: int, below: int) -> pa.Table:
        columns = self._columns[name]
        places = self._chance.choice(len(columns[column]), count, replace=False)
        old = pa.table({each: values[places] for each, values in columns.items()})
        columns[column][places] = some(self._chance, count, below)
        return weighted(old, pa.table({each: values[places] for each, values in columns.items()}))


STAR = Workload(SQL, "region, category, orders, amount, most", SPECS, Star)

"""Writes tests/golden/sql/*.json: of each query a few changes of its inputs, and how the answer changes with them.

The answers are DuckDB's, before and after; nothing of ours computes them. Run it by hand when a query is added:
python -m tests.golden.write_sql
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb

from headwater.process.sql.planner import plan_view
from tests.property.changes import INPUTS, Prefix, prefixes
from tests.property.test_prefix_rule import NAMED

FOLDER = Path(__file__).parent / "sql"
SEED, BATCHES = 4, 3


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, query in NAMED.items():
        oracle = plan_view("v", query, INPUTS).oracle
        before: Counter[str] = Counter()
        batches = []
        for prefix in prefixes(SEED, BATCHES):
            after = _answer(oracle, prefix)
            changed = {row: after[row] - before[row] for row in sorted({*before, *after}) if after[row] != before[row]}
            pushed = {topic: [plain(row) for row in rows.to_pylist()] for topic, rows in prefix.pushed.items()}
            batches.append({**pushed, "expect": [[*json.loads(row), weight] for row, weight in changed.items()]})
            before = after
        (FOLDER / f"{name}.json").write_text(_laid_out(query, batches))


def _answer(sql: str, prefix: Prefix) -> Counter[str]:
    oracle = duckdb.connect()
    oracle.execute("SET TimeZone = 'UTC'; SET threads = 1")
    for name, rows in prefix.held.items():
        oracle.register(name, rows)
    return Counter(json.dumps(list(plain(row).values())) for row in oracle.sql(sql).to_arrow_table().to_pylist())


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it: times and decimals as text, floats to nine digits."""
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _laid_out(query: str, batches: list[dict[str, Any]]) -> str:
    """A line a row."""

    def listed(rows: list[Any]) -> str:
        return "[" + ",".join(f"\n    {json.dumps(row)}" for row in rows) + "]"

    told = ",\n".join(
        "  {" + ",\n   ".join(f'"{name}": {listed(rows)}' for name, rows in batch.items()) + "}" for batch in batches
    )
    return f'{{"query": {json.dumps(query)},\n "batches": [\n{told}\n ]}}\n'


if __name__ == "__main__":
    main()

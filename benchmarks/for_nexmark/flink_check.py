"""Whether Flink's answers are the oracle's, over few events: a peer that answers something else is no peer.

python benchmarks/for_nexmark/flink_check.py        all queries, one line each
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from for_nexmark.flink import Flink, write_files
from for_nexmark.flink_install import FlinkFailed
from headwater.process import duck
from headwater.testing.nexmark.events import events, tables
from headwater.testing.nexmark.queries import QUERIES

EVENTS = 20_000
RATE = 1_000
SETTINGS = {"parallelism.default": "1", "execution.checkpointing.interval": "1 s"}
"""One file a topic is one task's; what is collected exactly once arrives with each checkpoint."""

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Verdict:
    changes: int
    rows: int
    missing: Rows
    """That the oracle has and Flink has not."""
    extra: Rows

    @property
    def agrees(self) -> bool:
        return not self.missing and not self.extra


def check(query: str, flink: Flink, oracle: Rows) -> Verdict:
    """Whether the changes that Flink makes add up to what the oracle says."""
    sql = QUERIES[query].flink
    assert sql is not None, f"Flink has no {query}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "changes"
        changes = flink.changes(sql, file)
        rows = folded(file)
    return Verdict(changes, rows.total(), oracle - rows, rows - oracle)


def folded(file: Path) -> Rows:
    rows: Rows = Counter()
    with open(file) as lines:
        for line in lines:
            kind, values = json.loads(line)
            rows[tuple(map(_plain, values))] += -1 if kind in {"-U", "-D"} else 1
    assert min(rows.values(), default=0) >= 0, "a row was retracted that was never there"
    return +rows


def answer_of_oracle(query: str) -> Rows:
    answer = duck.run(QUERIES[query].oracle, **tables(EVENTS, rate=RATE))
    return Counter(tuple(map(_plain, row.values())) for row in answer.to_pylist())


def _plain(value: Any) -> Any:
    """Values as JSON has them from Flink. Averages may differ in the last bits."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    return str(value.astimezone(UTC).replace(tzinfo=None)) if isinstance(value, datetime) else value


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="nexmark-") as folder:
        files = Path(folder) / "files"
        write_files(files, events(EVENTS, rate=RATE), tasks=1)
        with Flink(files, settings=SETTINGS) as flink:
            for name in sys.argv[1:] or [name for name, query in QUERIES.items() if query.flink]:
                try:
                    verdict = check(name, flink, answer_of_oracle(name))
                except FlinkFailed as failed:
                    print(f"{name}: {failed}")
                    continue
                word = "agrees" if verdict.agrees else "DIFFERS"
                print(f"{name}: {word}, {verdict.changes} changes, {verdict.rows} rows")
                for what, rows in (("missing", verdict.missing), ("extra", verdict.extra)):
                    for row in list(rows)[:2]:
                        print(f"   {what}: {row}")


if __name__ == "__main__":
    main()

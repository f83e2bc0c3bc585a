"""Random changes of three topics: a stream with nulls, ties, duplicates and times out of order, and two tables whose
rows come, change, change their group, and go. The same seed gives the same changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

from headwater.log import TopicSpec
from headwater.records import schema_of

Row = dict[str, Any]

INPUTS = {
    "clicks": TopicSpec(
        "clicks",
        schema_of(
            {"id": "int64", "user_id": "int64", "page": "string", "n": "int32", "price": "float64", "at": "timestamp"}
        ),
        key=("user_id",),
        time="at",
    ),
    "users": TopicSpec(
        "users", schema_of({"user_id": "int64", "country": "string", "age": "int32"}), key=("user_id",), kind="table"
    ),
    "rates": TopicSpec(
        "rates",
        schema_of({"country": "string", "rate": "int64", "at": "timestamp"}),
        key=("country",),
        time="at",
        kind="table",
    ),
}
HISTORY = "history of "
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Prefix:
    """One batch of changes, and what the topics hold after it."""

    pushed: dict[str, pa.Table]
    held: dict[str, pa.Table]


def prefixes(seed: int, batches: int) -> Iterator[Prefix]:
    chance = random.Random(seed)
    users, rates = _Table(chance, "user_id", _user), _Table(chance, "country", _rate)
    clicks: list[Row] = []
    ever: list[Row] = []
    for _ in range(batches):
        more = _clicks(chance, len(clicks))
        clicks += more
        changed = {"clicks": more, "users": users.change(4), "rates": rates.change(3)}
        ever += [{k: v for k, v in row.items() if k != "_weight"} for row in changed["rates"] if row["_weight"] > 0]
        held = {"clicks": clicks, "users": list(users.rows.values()), "rates": list(rates.rows.values())}
        yield Prefix(
            {name: pa.Table.from_pylist(rows, INPUTS[name].stored) for name, rows in changed.items()},
            {
                **{name: pa.Table.from_pylist(rows, INPUTS[name].schema) for name, rows in held.items()},
                f"{HISTORY}rates": pa.Table.from_pylist(ever, INPUTS["rates"].schema),
            },
        )


def answer(sql: str, held: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    """DuckDB's, over whole tables."""
    oracle = duckdb.connect()
    oracle.execute("SET TimeZone = 'UTC'; SET threads = 1")
    for name, rows in held.items():
        oracle.register(name, rows)
    return bag(oracle.sql(sql).to_arrow_table())


def bag(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Rows that can be compared: in one order, floats to nine digits, as sums of floats are."""
    return sorted((tuple(map(_comparable, row.values())) for row in rows.to_pylist()), key=repr)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list):
        return tuple(map(_comparable, value))
    return repr(sorted(value.items())) if isinstance(value, dict) else value


def _clicks(chance: random.Random, known: int) -> list[Row]:
    rows: list[Row] = []
    for number in range(chance.randrange(14)):
        rows.append(
            {
                "id": known + number if chance.random() < 0.8 else chance.randrange(5),
                "user_id": chance.randrange(6),
                "page": chance.choice(["/a", "/b", "/cc", None]),
                "n": chance.choice([None, *range(6)]),
                "price": chance.choice([None, 0.1, 0.2, 0.7, 1e16]),
                "at": _START + timedelta(seconds=chance.randrange(300)),
            }
        )
        if chance.random() < 0.1:
            rows.append(dict(rows[-1]))
    return rows


class _Table:
    """A table's changes with weights, as someone who knows the old rows writes them."""

    def __init__(self, chance: random.Random, key: str, make: Any) -> None:
        self._chance, self._key, self._make = chance, key, make
        self.rows: dict[Any, Row] = {}

    def change(self, most: int) -> list[Row]:
        written = []
        for _ in range(self._chance.randrange(most)):
            row = self._make(self._chance)
            if row[self._key] in self.rows:
                written.append({**self.rows.pop(row[self._key]), "_weight": -1})
            if self._chance.random() < 0.75:
                self.rows[row[self._key]] = row
                written.append({**row, "_weight": 1})
        return written


def _user(chance: random.Random) -> Row:
    country, age = chance.choice(["de", "fr", "us", None]), chance.choice([None, 20, 30, 40])
    return {"user_id": chance.randrange(6), "country": country, "age": age}


def _rate(chance: random.Random) -> Row:
    at = _START + timedelta(seconds=chance.randrange(300))
    return {"country": chance.choice(["de", "fr", "us"]), "rate": chance.randrange(5), "at": at}

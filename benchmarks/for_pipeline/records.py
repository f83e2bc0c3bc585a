"""The same clicks for every side, and how much of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

COLUMNS = {"user_id": "int64", "page": "string", "at": "timestamp", "price": "float64", "country": "string"}
DDL = "user_id long, page string, at timestamp, price double, country string"
PARTITIONS = 4
BLOCK = 100_000
START_US = 1_767_225_600_000_000
PAGES = np.array([f"/product/{number}" for number in range(20_000)])
COUNTRIES = np.array([f"c{number:02}" for number in range(60)])


@dataclass(frozen=True)
class Sizes:
    rows: int
    """Of the topic that goes through Spark to nowhere."""
    rounds: int
    """How often each side is measured; the median counts."""
    keys: int
    few_keys: int
    """For the peer that is too slow for all of them: rates are compared, not times."""
    seconds: float
    """How long latency is measured."""
    memory_minutes: float


def clicks(users: np.ndarray, chance: np.random.Generator, *, first_us: int = START_US) -> pa.Table:
    """One click of each of these users, a microsecond apart."""
    count = len(users)
    return pa.table(
        {
            "user_id": users,
            "page": PAGES[chance.integers(0, len(PAGES), count)],
            "at": pa.array(np.arange(count) + first_us).cast(pa.timestamp("us", "UTC")),
            "price": chance.integers(100, 100_000, count) / 100,
            "country": COUNTRIES[chance.integers(0, len(COUNTRIES), count)],
        }
    )


def blocks(rows: int) -> Iterator[pa.Table]:
    """`rows` clicks of 100,000 users, block by block: the same at every call."""
    chance = np.random.default_rng(11)
    for start in range(0, rows, BLOCK):
        yield clicks(chance.integers(0, 100_000, min(BLOCK, rows - start)), chance, first_us=START_US + start)


def load_of_all(keys: int, number: int, *, shift: int = 0) -> pa.Table:
    """One click of each of `keys` users in a random order; later loads are later in event time."""
    chance = np.random.default_rng(100 + number)
    return clicks(chance.permutation(keys) + shift, chance, first_us=START_US + number * keys)

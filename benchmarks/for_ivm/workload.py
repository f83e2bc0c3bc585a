"""What is joined, and what changes in it from round to round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headwater.log import TopicSpec


class Data(Protocol):
    def tables(self) -> Mapping[str, pa.Table]:
        """As they are now."""

    def changes(self) -> Mapping[str, pa.Table]:
        """The thousand changes of a round, by table, weighted; the tables are as they are after it."""


@dataclass(frozen=True)
class Workload:
    sql: str
    answer: str
    """The names of its columns."""
    specs: Mapping[str, TopicSpec]
    data: Callable[[int], Data]
    """For so many rows in all tables together."""


def weighted(old: pa.Table, new: pa.Table) -> pa.Table:
    weights = np.repeat(np.array([-1, 1], np.int64), [old.num_rows, new.num_rows])
    return pa.concat_tables([old, new]).append_column("_weight", pa.array(weights))


def some(chance: np.random.Generator, count: int, below: int) -> Any:
    return chance.integers(0, below, count)

"""Ranges of a table's key: what is read in one go, and told done in one append."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]

RANGE_ROWS = 250_000


class Named(Protocol):
    @property
    def name(self) -> str: ...


Table = TypeVar("Table", bound=Named)


@dataclass(frozen=True)
class Range:
    """low <= key < high; None is without end."""

    low: int | None = None
    high: int | None = None

    def condition(self, column: str) -> str:
        told = [f"{column} >= {self.low}"] if self.low is not None else []
        told += [f"{column} < {self.high}"] if self.high is not None else []
        return " AND ".join(told) or "true"

    def holds(self, keys: pa.Array) -> Mask:
        inside = np.ones(len(keys), np.bool_)
        if self.low is not None:
            inside &= keys.to_numpy(zero_copy_only=False) >= self.low
        if self.high is not None:
            inside &= keys.to_numpy(zero_copy_only=False) < self.high
        return inside


@dataclass(frozen=True)
class Piece:
    """A range of a table."""

    table: str
    range: Range
    done: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Piece:
        return cls(told["table"], Range(**told["range"]), told["done"])


def planned(
    tables: Sequence[Table], rows_of: Callable[[Table], int], ranges_of: Callable[[Table, int], list[Range]]
) -> tuple[list[Piece], int]:
    """All that is to be read, and about how many rows that are."""
    sizes = [rows_of(table) for table in tables]
    pieces = [
        Piece(table.name, each) for table, rows in zip(tables, sizes, strict=True) for each in ranges_of(table, rows)
    ]
    return pieces, sum(sizes)


def cut(low: int, high: int, wanted: int) -> list[Range]:
    """As many ranges of one width as are wanted, or fewer; the outer ones are without end."""
    width = max(1, -(-(high - low + 1) // wanted))
    bounds: list[Any] = [None, *range(low + width, high + 1, width), None]
    return [Range(begin, end) for begin, end in itertools.pairwise(bounds)]

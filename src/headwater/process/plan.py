"""A view as data: what is read, through which operators, into what. Pickles, so tasks carry it; has a fingerprint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.log import keyhash
from headwater.process import duck, functions
from headwater.process.keyed.operator import Operator

BUCKETS = 4
"""How many ways keys are spread over state. Fixed for a version of a view."""

CHANGES = "changes"
"""The relation that the linear SQL of a read or a level speaks of."""


@dataclass(frozen=True)
class Read:
    """One input: a linear query over the topic's changes, run inside the source task, and how its rows are spread."""

    topic: str
    columns: tuple[str, ...]
    sql: str
    key: tuple[str, ...]
    metadata: bool = False
    """Whether `_partition` and `_offset` come along: the order of the log."""


@dataclass(frozen=True)
class Level:
    """One stateful operator, a linear query over its answer, and how the rows go on: by `key` to the next level's
    buckets or, at the last level, to the partitions of the view's topic."""

    operator: Operator
    sql: str | None
    key: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    view: str
    sql: str
    reads: tuple[Read, ...]
    levels: tuple[Level, ...]
    schema: pa.Schema
    key: tuple[str, ...]
    buckets: int = BUCKETS

    def over(self, topics: Mapping[str, str]) -> Plan:
        """The same plan, reading these topics: of an input that is a view, those of one version."""
        reads = tuple(dataclasses.replace(read, topic=topics.get(read.topic, read.topic)) for read in self.reads)
        return dataclasses.replace(self, reads=reads)

    def described(self) -> dict[str, Any]:
        """All that the fingerprint covers, and the SQL as it was written: kept with every version, to say what changed.

        Dataclasses are `[name, revision, {field: value}]`; see `process.diff` for the words.
        """
        return {
            "plan": described_part(self),
            "engines": {"duckdb": duck.VERSION, "hash": keyhash.VERSION},
            "sql": self.sql,
        }


def described_part(part: Any) -> Any:
    if isinstance(part, pa.Schema):
        return [[field.name, str(field.type)] for field in part]
    if isinstance(part, tuple | list):
        return [described_part(item) for item in part]
    if isinstance(part, Mapping):
        return ["mapping", [[described_part(name), described_part(part[name])] for name in sorted(part, key=repr)]]
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {field.name: described_part(getattr(part, field.name)) for field in dataclasses.fields(part)}
        if isinstance(part, Plan):
            del fields["sql"]  # the plan is what counts, not how its text was laid out
        return [type(part).__name__, getattr(part, "revision", None), fields]
    return functions.described(part, described_part) if callable(part) else _value(part)


def _value(part: Any) -> Any:
    """Times, decimals and the like by their value; of anything else its repr could be an address."""
    if part is None or isinstance(part, bool | int | float | str):
        return part
    kind: Any = type(part)
    return [kind.__qualname__, "" if kind.__repr__ is object.__repr__ else repr(part)]

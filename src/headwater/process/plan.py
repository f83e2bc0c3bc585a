"""A view as data: what is read, through which operators, into what. Pickles, so tasks carry it; has a fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
import json
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
    """Whether the changes also have `_partition` and `_offset`: where in the log each record stands."""


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

    def fingerprint(self) -> str:
        """Changes whenever the same log could give another state or output."""
        described = json.dumps([_described(self), duck.VERSION, keyhash.VERSION], sort_keys=True)
        return hashlib.blake2b(described.encode(), digest_size=8).hexdigest()


def _described(part: Any) -> Any:
    if isinstance(part, pa.Schema):
        return [[field.name, str(field.type)] for field in part]
    if isinstance(part, tuple | list):
        return [_described(item) for item in part]
    if isinstance(part, Mapping):
        return ["mapping", [[_described(name), _described(part[name])] for name in sorted(part, key=repr)]]
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {field.name: _described(getattr(part, field.name)) for field in dataclasses.fields(part)}
        if isinstance(part, Plan):
            del fields["sql"]  # the plan is what counts, not how its text was laid out
        return [type(part).__name__, getattr(part, "revision", None), fields]
    return functions.described(part, _described) if callable(part) else _value(part)


def _value(part: Any) -> Any:
    """Times, decimals and the like by their value; of anything else its repr could be an address."""
    if part is None or isinstance(part, bool | int | float | str):
        return part
    kind: Any = type(part)
    return [kind.__qualname__, "" if kind.__repr__ is object.__repr__ else repr(part)]

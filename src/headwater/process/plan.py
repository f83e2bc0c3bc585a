"""A view as data: what is read, through which operators, into what. Pickles, so tasks carry it; has a fingerprint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from headwater.log import keyhash
from headwater.process import duck, functions
from headwater.process.keyed import spreading
from headwater.process.keyed.first import First
from headwater.process.keyed.operator import FoundBy, Operator
from headwater.process.keyed.partial import Partial
from headwater.process.keyed.shown import Shown

BUCKETS = 4
"""How many ways keys are spread over state. Fixed for a version of a view."""

CHANGES = "changes"
"""The relation that the linear SQL of a read or a level speaks of."""


ONE = "1"
"""In a plain query: not a column but the number, as the weight of a fact is."""

OUT = -1
"""Where rows go that leave the plan: into the view's topic."""


@dataclass(frozen=True)
class Send:
    """Rows on their way: through a linear query over `changes`, spread by `key`, into a port of a node, or out.

    Without a key all rows go into one bucket. `to_all` gives every bucket all of them: the small side of a join that
    has no equality. `local` rows stay in the bucket where they are, spread by `key`, which all of their key's are in.
    """

    sql: str | None
    key: tuple[str, ...]
    node: int = OUT
    port: int = 0
    to_all: bool = False
    local: bool = False
    plain: tuple[tuple[str, str], ...] | None = None
    """If the query only chooses and renames columns: each one's name, and which it is of `changes`, or `ONE`."""
    partial: Partial | None = None
    """If the query only brings rows together by some columns: how, so that few rows can do without DuckDB."""
    shown: Shown | None = None
    """If the query only chooses columns and shows sums of nothing as null: how, likewise."""
    first: First | None = None
    """If only some of its rows need to travel."""
    net: bool = False
    """Whether rows may come out that take each other back, of which nothing is to be told."""


@dataclass(frozen=True)
class Read:
    """One input, read once a batch: what its source task sends, each through a query of its own."""

    topic: str
    columns: tuple[str, ...]
    sends: tuple[Send, ...]
    metadata: bool = False
    """Whether `_partition` and `_offset` come along: the order of the log."""


@dataclass(frozen=True)
class Node:
    """One stateful operator. Its level is how many times rows were spread anew before they reach it, less one."""

    operator: Operator
    level: int
    sends: tuple[Send, ...]


@dataclass(frozen=True)
class Plan:
    """Nodes are in an order in which each comes after those that it hears of."""

    view: str
    sql: str
    reads: tuple[Read, ...]
    nodes: tuple[Node, ...]
    schema: pa.Schema
    key: tuple[str, ...]
    """Columns that no two rows agree in, by which a row can be asked for; without, the view is a bag of rows."""
    buckets: int = BUCKETS
    oracle: str = ""
    """The query as plain SQL that DuckDB answers over whole topics; nothing is computed by it."""
    names: tuple[str, ...] = ()
    """What the query calls the topics of `reads`, which may be those of a version."""
    final: tuple[str, int] | None = None
    """If rows are held back: by which column, and how long (µs)."""

    @cached_property
    def whole_levels(self) -> frozenset[int]:
        """Those where the state of all buckets can be read and written as one."""
        sends = [send for read in self.reads for send in read.sends]
        sends += [send for node in self.nodes for send in node.sends]
        apart = {
            node.level
            for number, node in enumerate(self.nodes)
            if not _finds(node.operator, [send for send in sends if send.node == number])
        }
        return frozenset(range(self.levels)) - apart

    @property
    def levels(self) -> int:
        """How many times rows are spread: none for a view without state, which never leaves the source task."""
        return max((node.level + 1 for node in self.nodes), default=0)

    def at(self, level: int) -> list[tuple[int, Node]]:
        return [(number, node) for number, node in enumerate(self.nodes) if node.level == level]

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
            "engines": {"duckdb": duck.VERSION, "hash": keyhash.VERSION, "spreading": spreading.VERSION},
            "sql": self.sql,
        }


def _finds(operator: Operator, sends: Sequence[Send]) -> bool:
    """Whether it finds all that it keeps of what is sent to it by the same key by which that is spread."""
    found_by: FoundBy | None = getattr(operator, "found_by", None)
    return found_by is not None and all(
        not send.to_all and send.port < len(found_by) and found_by[send.port] == send.key for send in sends
    )


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
            del (
                fields["sql"],
                fields["oracle"],
                fields["names"],
                fields["final"],
            )  # the plan is what counts, not how its text was laid out
        if isinstance(part, Send):
            del fields["partial"], fields["shown"]  # the query says it; how few rows are answered is no part of it
        return [type(part).__name__, getattr(part, "revision", None), fields]
    return functions.described(part, described_part) if callable(part) else _value(part)


def _value(part: Any) -> Any:
    """Times, decimals and the like by their value; of anything else its repr could be an address."""
    if part is None or isinstance(part, bool | int | float | str):
        return part
    kind: Any = type(part)
    return [kind.__qualname__, "" if kind.__repr__ is object.__repr__ else repr(part)]

"""One batch of one level in one bucket: a step of each operator there, on what has arrived for it.

port    >= 0       changes for a port of a node of this level, or of a later one to which they are passed on
        WATERMARK  one row {watermark: int64}: how far event time has come; in every bucket or in none
        BEGIN      in the first bucket of a view's first batch: what answers a row over nothing does so now
        ANSWER     rows of the view's topic, in the bucket that is their partition
        DEAD       dead letters
        STAGED     a `Part`, pickled: rows of the view's topic that are on disk already
        STATE      JSON: the manifests of a bucket as they will be once the batch is appended, see `keeping`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.process import duck
from headwater.process.keyed.operator import State, Within
from headwater.process.keyed.packing import by_key, pack
from headwater.process.keyed.weighing import net, netted, only_added
from headwater.process.plan import CHANGES, ONE, OUT, Node, Plan, Send

WATERMARK = -1
ANSWER = -2
DEAD = -3
STAGED = -4
BEGIN = -5
STATE = -6

Ways = Callable[[Send], int]

_PORTS = 16
"""More than a node has."""


@dataclass(frozen=True)
class Blob:
    """Rows as they travel."""

    bucket: int
    port: int
    data: bytes


@dataclass(frozen=True)
class Rows:
    """Rows about to leave."""

    bucket: int
    port: int
    rows: pa.Table


@dataclass(frozen=True)
class Arrived:
    """What has come for the nodes of a level, by port."""

    ports: Mapping[int, pa.Table]
    watermark: int | None = None
    first: bool = False
    """Whether it is BEGIN."""

    def __bool__(self) -> bool:
        return bool(self.ports) or self.watermark is not None or self.first


def begins(plan: Plan) -> bool:
    """Whether the first batch is to be told that it is the first."""
    return any(_begins_with(node) is not None for node in plan.nodes)


def is_for(plan: Plan, level: int, port: int) -> bool:
    """Whether rows of this port are for a node of this level; else they are passed on."""
    return port >= 0 and plan.nodes[port // _PORTS].level == level


def pack_watermark(watermark: int) -> bytes:
    return pack(pa.table({"watermark": pa.array([watermark], pa.int64())}))


def sent(send: Send, rows: pa.Table, buckets: int) -> Iterator[Rows]:
    """Rows that go to other buckets, or out."""
    rows = linear(send, rows)
    if rows.num_rows == 0:
        return
    if send.first is not None:
        rows = send.first.of(rows)
    port = ANSWER if send.node == OUT else send.node * _PORTS + send.port
    if send.to_all:
        yield from (Rows(bucket, port, rows) for bucket in range(buckets))
    elif not send.key:
        # Into one bucket; rows of a view that are never taken away again may be in any, and take turns.
        yield Rows(0 if send.node != OUT else rows.num_rows % buckets, port, rows)
    else:
        yield from (Rows(bucket, port, some) for bucket, some in by_key(rows, send.key, buckets))


def linear(send: Send, rows: pa.Table) -> pa.Table:
    if not send.net or only_added(rows):
        return _answered(send, rows)
    if rows.num_rows <= duck.FEW:
        return netted(_answered(send, rows))
    return duck.run(net(send.sql or f"FROM {CHANGES}"), **{CHANGES: rows})


def _answered(send: Send, rows: pa.Table) -> pa.Table:
    if send.plain is not None:
        one = pa.chunked_array([pa.array(np.ones(rows.num_rows, np.int64))])
        return pa.table({name: one if of == ONE else rows.column(of) for name, of in send.plain})
    if send.shown is not None and rows.num_rows <= duck.FEW and (shown := send.shown.of(rows)) is not None:
        return shown
    if send.partial is not None and (few := send.partial.of(rows)) is not None:
        return few
    return rows if send.sql is None else duck.run(send.sql, **{CHANGES: rows})


def run_batch(
    plan: Plan, level: int, bucket: int, state: State, arrived: Arrived, ways: Ways | None = None
) -> Iterator[Rows]:
    """The level's steps. The state is up to date once all was taken. `ways` says into how many buckets rows are spread
    that leave, if these are not all of the plan's."""
    here: dict[int, dict[int, list[pa.Table]]] = {}
    for port, rows in sorted(arrived.ports.items()):
        number, into = divmod(port, _PORTS)
        here.setdefault(number, {}).setdefault(into, []).append(rows)
    for number, node in plan.at(level):
        if arrived.first and not here.get(number) and (schema := _begins_with(node)) is not None:
            here[number] = {0: [schema.empty_table()]}
        ports = {port: together(tables) for port, tables in sorted(here.get(number, {}).items())}
        if not ports and arrived.watermark is None:
            continue
        answer = node.operator.step(Within(state, f"{number} "), ports, arrived.watermark)
        for send in node.sends:
            if not send.local:
                yield from sent(send, answer.rows, plan.buckets if ways is None else ways(send))
            elif answer.rows.num_rows and (rows := linear(send, answer.rows)).num_rows:
                here.setdefault(send.node, {}).setdefault(send.port, []).append(rows)
        if answer.dead is not None and answer.dead.num_rows:
            yield Rows(bucket, DEAD, answer.dead)


def _begins_with(node: Node) -> pa.Schema | None:
    schema: pa.Schema | None = getattr(node.operator, "begins_with", None)
    return schema


def together(tables: Sequence[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

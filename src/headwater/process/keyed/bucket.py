"""One batch of one level in one bucket: what arrives packed, a step of each operator there, what goes on packed.

port    >= 0       changes for a port of a node of this level, or of a later one to which they are passed on
        WATERMARK  one row {watermark: int64}: how far event time has come; in every bucket or in none
        BEGIN      in the first bucket of a view's first batch: what answers a row over nothing does so now
        ANSWER     rows of the view's topic, in the bucket that is their partition
        DEAD       dead letters
        STAGED     a `Part`, pickled: rows of the view's topic that are on disk already
        STATE      JSON: the manifests of a bucket as they will be once the batch is appended, see `keeping`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.process import duck
from headwater.process.keyed.operator import State, Within
from headwater.process.keyed.packing import by_key, pack, unpack
from headwater.process.keyed.weighing import net, only_added
from headwater.process.plan import CHANGES, ONE, OUT, Node, Plan, Send

WATERMARK = -1
ANSWER = -2
DEAD = -3
STAGED = -4
BEGIN = -5
STATE = -6

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

    def packed(self) -> Blob:
        return Blob(self.bucket, self.port, pack(self.rows))


def begins(plan: Plan) -> bool:
    """Whether the first batch is to be told that it is the first."""
    return any(_begins_with(node) is not None for node in plan.nodes)


def pack_watermark(watermark: int) -> bytes:
    return pack(pa.table({"watermark": pa.array([watermark], pa.int64())}))


def sent(send: Send, rows: pa.Table, buckets: int) -> Iterator[Rows | Blob]:
    """Rows that go to other buckets, or out."""
    rows = linear(send, rows)
    if rows.num_rows == 0:
        return
    if send.first is not None:
        rows = send.first.of(rows)
    port = ANSWER if send.node == OUT else send.node * _PORTS + send.port
    if send.to_all:
        data = pack(rows)
        yield from (Blob(bucket, port, data) for bucket in range(buckets))
    elif not send.key:
        # Into one bucket; rows of a view that are never taken away again may be in any, and take turns.
        yield Rows(0 if send.node != OUT else rows.num_rows % buckets, port, rows)
    else:
        yield from (Rows(bucket, port, some) for bucket, some in by_key(rows, send.key, buckets))


def linear(send: Send, rows: pa.Table) -> pa.Table:
    if send.net and not only_added(rows):
        return duck.run(net(send.sql or f"FROM {CHANGES}"), **{CHANGES: rows})
    if send.plain is not None:
        one = pa.chunked_array([pa.array(np.ones(rows.num_rows, np.int64))])
        return pa.table({name: one if of == ONE else rows.column(of) for name, of in send.plain})
    return rows if send.sql is None else duck.run(send.sql, **{CHANGES: rows})


def run_batch(
    plan: Plan, level: int, bucket: int, state: State, arriving: Mapping[int, Sequence[bytes]]
) -> Iterator[Rows | Blob]:
    """The level's steps on what has arrived by port, in any order. The state is up to date once all was taken."""
    # Tasks deliver in any order; the operators do not mind, sorting makes what they write the same bytes every time.
    told = unpack(arriving[WATERMARK]) if WATERMARK in arriving else None
    watermark: int | None = pc.min(told["watermark"]).as_py() if told is not None else None
    first = BEGIN in arriving
    if level < plan.levels - 1:
        yield from _told_on(bucket, watermark, first=first)
    here: dict[int, dict[int, list[pa.Table]]] = {}
    for port, blobs in sorted(arriving.items()):
        if port in (WATERMARK, BEGIN):
            continue
        number, into = divmod(port, _PORTS)
        if port >= 0 and plan.nodes[number].level == level:
            here.setdefault(number, {}).setdefault(into, []).append(unpack(sorted(blobs)))
        else:
            yield from (Blob(bucket, port, blob) for blob in sorted(blobs))
    for number, node in plan.at(level):
        if first and not here.get(number) and (schema := _begins_with(node)) is not None:
            here[number] = {0: [schema.empty_table()]}
        ports = {port: _together(tables) for port, tables in sorted(here.get(number, {}).items())}
        if not ports and watermark is None:
            continue
        answer = node.operator.step(Within(state, f"{number} "), ports, watermark)
        for send in node.sends:
            if not send.local:
                yield from sent(send, answer.rows, plan.buckets)
            elif answer.rows.num_rows and (rows := linear(send, answer.rows)).num_rows:
                here.setdefault(send.node, {}).setdefault(send.port, []).append(rows)
        if answer.dead is not None and answer.dead.num_rows:
            yield Rows(bucket, DEAD, answer.dead)


def _told_on(bucket: int, watermark: int | None, *, first: bool) -> Iterator[Blob]:
    if watermark is not None:
        yield Blob(bucket, WATERMARK, pack_watermark(watermark))
    if first:
        yield Blob(bucket, BEGIN, b"")


def _begins_with(node: Node) -> pa.Schema | None:
    schema: pa.Schema | None = getattr(node.operator, "begins_with", None)
    return schema


def _together(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

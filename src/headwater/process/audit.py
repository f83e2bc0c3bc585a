"""A view against DuckDB: its SQL over the inputs as far as the view covers them, compared with the rows it has.

Both sides come from the log, at one append, so it can be done while the app runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.process import duck
from headwater.process.keyed.lane import KeyedLane
from headwater.process.keyed.weighing import present
from headwater.process.lateness import passed, running
from headwater.process.source import Range
from headwater.process.sql.valid_then import HISTORY
from headwater.records import DELETED, OFFSET, WEIGHT

SHOWN = 5


@dataclass(frozen=True)
class Audited:
    view: str
    rows: int
    covers: str
    missing: tuple[dict[str, Any], ...] = ()
    """Some of the rows that it should have."""
    surplus: tuple[dict[str, Any], ...] = ()
    """Some of those that it should not."""

    @property
    def sound(self) -> bool:
        return not self.missing and not self.surplus


def audit(log: Log, lane: KeyedLane, *, topic: str, producer: str) -> Audited | None:
    """None if the view has made nothing yet, or is not one of SQL."""
    covered = log.covered(producer)
    plan = lane.plan
    if covered is None or not plan.oracle:
        return None
    end = covered.progress.end
    has = present(_read(log, log.topic(topic), Position.of({topic: log.position_at(topic, covered.number)})))
    connection = duckdb.connect(":memory:")
    connection.execute("SET threads = 1; SET TimeZone = 'UTC'")
    named = dict(
        zip((read.topic for read in plan.reads), plan.names or [read.topic for read in plan.reads], strict=True)
    )
    for read in plan.reads:
        spec = log.topic(read.topic)
        rows = pa.concat_tables([spec.stored.empty_table(), *_admitted(log, spec, end, dict(lane.lateness))])
        connection.register(named[read.topic], _table(spec, rows))
        if spec.kind == "table":
            connection.register(HISTORY + named[read.topic], _ever(spec, rows))
    should = connection.sql(plan.oracle).to_arrow_table().cast(plan.schema)
    if plan.final is not None:
        should = _final(log, should, plan.final, end, lane)
    differ = _difference(should, has)
    return Audited(plan.view, should.num_rows, str(end), differ[0], differ[1])


def _read(log: Log, spec: TopicSpec, end: Position) -> pa.Table:
    tables = [spec.stored.empty_table()]
    for partition, extent in log.extents(spec.name).items():
        scanned = log.scan(spec.name, partition, extent.start, end.offset(spec.name, partition))
        tables += [pa.Table.from_batches([batch]).select(spec.stored.names) for batch in scanned]
    return pa.concat_tables(tables)


def _admitted(log: Log, spec: TopicSpec, end: Position, lateness: Mapping[str, int]) -> Iterator[pa.Table]:
    """All that has come, but for what was late; of upserts with their places in the log."""
    for partition, extent in log.extents(spec.name).items():
        part = Range(spec.name, partition, extent.start, end.offset(spec.name, partition))
        scanned = log.scan(spec.name, partition, part.start, part.end, metadata=spec.upsert)
        names = [*spec.stored.names, *([OFFSET] if spec.upsert else [])]
        if spec.name in lateness:
            for batch, late in running(log, spec, part, scanned, lateness[spec.name]):
                yield pa.Table.from_batches([batch.filter(pa.array(late == 0))]).select(spec.stored.names)
        else:
            for batch in scanned:
                yield pa.Table.from_batches([batch]).select(names)


def _table(spec: TopicSpec, rows: pa.Table) -> pa.Table:
    if spec.weighted:
        return present(rows)
    if spec.upsert:
        keys = duck.columns(spec.key)
        return duck.ask(
            f"SELECT {duck.columns(spec.schema.names)} FROM (FROM rows QUALIFY row_number() OVER"
            f" (PARTITION BY {keys} ORDER BY {OFFSET} DESC) = 1) WHERE NOT {DELETED}",
            rows=rows,
        )
    return rows


def _ever(spec: TopicSpec, rows: pa.Table) -> pa.Table:
    there = f"{WEIGHT} > 0" if spec.weighted else f"NOT {DELETED}"
    return duck.ask(f"SELECT {duck.columns(spec.schema.names)} FROM rows WHERE {there}", rows=rows)


def _final(log: Log, rows: pa.Table, final: tuple[str, int], end: Position, lane: KeyedLane) -> pa.Table:
    """Those of the rows that nothing can change any more."""
    reached = passed(log, [topic for topic, _ in lane.lateness], end)
    column, wait = final
    bound = (reached if reached is not None else -(2**62)) - wait
    return duck.ask(
        f"FROM rows WHERE epoch_us({duck.quoted(column)}) < {bound} OR {duck.quoted(column)} IS NULL", rows=rows
    )


def _difference(should: pa.Table, has: pa.Table) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
    has = has.select(should.schema.names)
    missing = duck.ask("FROM should EXCEPT ALL FROM has", should=should, has=has).to_pylist()
    surplus = duck.ask("FROM has EXCEPT ALL FROM should", should=should, has=has).to_pylist()
    if missing and surplus and any(pa.types.is_floating(field.type) for field in should.schema):
        missing, surplus = _beyond_rounding(missing, surplus)
    return tuple(missing[:SHOWN]), tuple(surplus[:SHOWN])


def _beyond_rounding(missing: list[Any], surplus: list[Any]) -> tuple[list[Any], list[Any]]:
    """Sums of floats depend on their order: what agrees to nine digits is the same."""
    left: dict[str, list[Any]] = {}
    for row in surplus:
        left.setdefault(_rounded(row), []).append(row)
    really = [row for row in missing if not (left.get(_rounded(row)) and left[_rounded(row)].pop())]
    return really, [row for rows in left.values() for row in rows]


def _rounded(row: Mapping[str, Any]) -> str:
    return repr([f"{value:.9g}" if isinstance(value, float) else value for value in row.values()])

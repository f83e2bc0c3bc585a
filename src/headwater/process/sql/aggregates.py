"""GROUP BY: which aggregates are kept as numbers, and the partial results that are computed before rows travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import pyarrow as pa
from sqlglot import exp

from headwater.process import duck
from headwater.process.keyed.aggregate import ROWS, Aggregate, Distinct, Extreme
from headwater.process.keyed.counting import VALUE
from headwater.process.keyed.summing import How
from headwater.process.sql.panes import by_panes
from headwater.process.sql.parse import function_name, sql_type
from headwater.process.sql.relation import Build, Lazy, Part, Rel, absorbed
from headwater.process.sql.settling import own
from headwater.process.sql.spans import by_spans
from headwater.records import WEIGHT

_NUMBERS = (exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max)


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    told = duck.run("SELECT DISTINCT function_name AS name FROM duckdb_functions() WHERE function_type = 'aggregate'")
    return frozenset(told["name"].to_pylist())


def is_aggregate(node: exp.Expr) -> bool:
    """An aggregate of a group, not one over a window."""
    if isinstance(node.parent, exp.Window) and node.arg_key == "this":
        return False
    if isinstance(node, exp.Filter):
        return not (isinstance(node.parent, exp.Window) and node.arg_key == "this")
    if isinstance(node.parent, exp.Filter) and isinstance(node.parent.parent, exp.Window):
        return False
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and function_name(node) in _names())


@dataclass(frozen=True)
class Asked:
    """One aggregate of the query, with its text over the columns of the rows that are grouped."""

    node: exp.Expr
    """The function itself."""
    text: str
    argument: str | None
    condition: str | None
    name: str

    @property
    def distinct(self) -> bool:
        return isinstance(self.node.this, exp.Distinct)


@dataclass
class Numbers:
    """The aggregates of one GROUP BY as numbers that can be added up: what arrives, how it is combined, and what each
    aggregate is made of."""

    build: Build
    rows: Rel
    partial: list[tuple[str, str]] = field(default_factory=list)
    how: list[tuple[str, How]] = field(default_factory=list)
    values: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Of each counted column the names of its distinct counts, each with its condition."""
    extremes: list[tuple[str, Literal["min", "max"], str, str]] = field(default_factory=list)
    """Name, how, column, condition."""
    made: dict[str, str] = field(default_factory=dict)
    """Of each aggregate, by its name, the SQL over the operator's answer."""

    def add(self, asked: Asked) -> bool:
        """False if it cannot be kept as numbers."""
        node, condition = asked.node, asked.condition or "true"
        if isinstance(node, exp.Count):
            return self._count(asked, condition)
        if isinstance(node, exp.CountIf) and asked.argument is not None and not asked.distinct:
            self.made[asked.name] = duck.quoted(self._counter(f"{condition} AND ({asked.argument})"))
            return True
        if not isinstance(node, _NUMBERS) or asked.argument is None or asked.distinct or len(_arguments(node)) > 1:
            return False
        kind = self.build.schema(self.rows.project([("x", asked.argument)])).field("x").type
        if isinstance(node, exp.Sum | exp.Avg):
            return self._sum(asked, condition, kind)
        how: Literal["min", "max"] = "min" if isinstance(node, exp.Min) else "max"
        if pa.types.is_nested(kind):
            return False
        self.made[asked.name] = duck.quoted(self._extreme(asked.argument, condition, how))
        return True

    def _count(self, asked: Asked, condition: str) -> bool:
        counted = asked.node.this
        if asked.node.expressions or (asked.distinct and len(counted.expressions) != 1):
            return False
        if counted is None or isinstance(counted, exp.Star | exp.Literal):
            self.made[asked.name] = (
                duck.quoted(ROWS) if asked.condition is None else duck.quoted(self._counter(condition))
            )
        elif asked.distinct:
            assert asked.argument is not None
            named = self.values.setdefault(asked.argument, [])
            known = next((name for name, given in named if given == condition), None)
            if known is None:
                known = f"d{sum(map(len, self.values.values()))}"
                named.append((known, condition))
            self.made[asked.name] = duck.quoted(known)
        else:
            self.made[asked.name] = duck.quoted(self._counter(f"{condition} AND ({asked.argument}) IS NOT NULL"))
        return True

    def _sum(self, asked: Asked, condition: str, kind: pa.DataType) -> bool:
        """Whole numbers and decimals: those of floats depend on their order, and are computed over sorted rows."""
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            small = pa.types.is_boolean(kind) or kind.bit_width <= 32
            width = "BIGINT" if small else "DECIMAL(38, 0)"
        elif pa.types.is_decimal(kind):
            small, width = True, f"DECIMAL(38, {kind.scale})"
        else:
            return False
        x = f"({asked.argument})" if not pa.types.is_boolean(kind) else f"({asked.argument})::INTEGER"
        weighed = x if self.rows.append_only else f"{x if small else x + '::HUGEINT'} * {WEIGHT}"
        text = f"coalesce(sum({weighed}) FILTER (WHERE {condition}), 0)::{width}"
        total = self._number(text, "sum")
        count = self._counter(f"{condition} AND ({asked.argument}) IS NOT NULL")
        if isinstance(asked.node, exp.Avg):
            self.made[asked.name] = f"CASE WHEN {count} > 0 THEN {total}::DOUBLE / {count} END"
        else:
            answer = self.build.schema(self.rows.project([("x", asked.argument or "")]))
            told = self.build.ask("SELECT sum(x) AS x FROM rows", rows=answer.empty_table()).field("x").type
            self.made[asked.name] = f"CASE WHEN {count} > 0 THEN {total}::{sql_type(told)} END"
        return True

    def _extreme(self, argument: str, condition: str, how: Literal["min", "max"]) -> str:
        if self.rows.append_only:
            return self._number(f"{how}({argument}) FILTER (WHERE {condition})", how)
        for name, *known in self.extremes:
            if known == [how, argument, condition]:
                return name
        self.extremes.append((f"e{len(self.extremes)}", how, argument, condition))
        return self.extremes[-1][0]

    def _counter(self, condition: str) -> str:
        if self.rows.append_only:
            return self._number(f"count(*) FILTER (WHERE {condition})", "sum")
        return self._number(f"coalesce(sum({WEIGHT}) FILTER (WHERE {condition}), 0)::BIGINT", "sum")

    def _number(self, text: str, how: How) -> str:
        known = next((name for name, given in self.partial if given == text), None)
        if known is None:
            known = f"n{len(self.partial)}"
            self.partial.append((known, text))
            self.how.append((known, how))
        return known

    # --- the node ---

    def node(self, keys: tuple[str, ...]) -> Rel:
        """Rows with the keys, `_rows` and all numbers."""
        weight = "count(*)" if self.rows.append_only else f"sum({WEIGHT})::BIGINT"
        main = self.told(keys)
        ports = [main]
        distinct = []
        for column, counts in self.values.items():
            sums = [(name, self._distinct_weight(condition)) for name, condition in counts]
            some = " OR ".join(f"({condition})" for _, condition in counts)
            ports.append(self._sent((*keys, VALUE), sums, value=column, where=f"{VALUE} IS NOT NULL AND ({some})"))
            kind = self.build.schema(self.rows.project([("x", column)])).field("x").type
            distinct.append(Distinct(kind, tuple(name for name, _ in counts)))
        extremes = []
        for name, how, column, condition in self.extremes:
            where = f"{VALUE} IS NOT NULL AND ({condition})"
            ports.append(self._sent((*keys, VALUE), [(WEIGHT, weight)], value=column, where=where))
            kind = self.build.schema(self.rows.project([("x", column)])).field("x").type
            extremes.append(Extreme(name, kind, how))
        arriving = self.schema(main)
        until = next((key for key in keys if key in self.rows.bounds), None)
        retain = self.rows.bounds[until] + (self.build.retain or 0) if until is not None else 0
        operator = Aggregate(arriving, keys, tuple(self.how), tuple(distinct), tuple(extremes), until, retain)
        made = self.build.node(operator, [(port, keys) for port in ports], [arriving], spread_by=[keys] * len(ports))
        columns = (*keys, ROWS, *(name for name, _ in operator.answered))
        sql = f"SELECT {duck.columns(columns)}, {WEIGHT} FROM changes"
        spread = self.build.spread_after(main, keys) if len(ports) == 1 else keys
        return Rel(columns, (Part(made, sql),), False, spread=spread, unique=keys, bounds=_kept(self.rows, keys))

    def told(self, keys: tuple[str, ...]) -> Rel:
        """The numbers of each group of rows that travel together, and how many rows it has, as `_weight`."""
        weight = "count(*)" if self.rows.append_only else f"sum({WEIGHT})::BIGINT"
        return self._sent(keys, [(WEIGHT, weight), *self.partial])

    def _distinct_weight(self, condition: str) -> str:
        if self.rows.append_only:
            return f"count(*) FILTER (WHERE {condition})"
        return f"coalesce(sum({WEIGHT}) FILTER (WHERE {condition}), 0)::BIGINT"

    def _sent(
        self,
        keys: tuple[str, ...],
        sums: Sequence[tuple[str, str]],
        *,
        value: str | None = None,
        where: str | None = None,
    ) -> Rel:
        rows = self.rows if value is None else _with(self.rows, VALUE, value)
        texts = [*([duck.columns(keys)] if keys else []), *(f"{text} AS {duck.quoted(name)}" for name, text in sums)]
        condition = f" WHERE {where}" if where else ""
        grouped = f" GROUP BY {duck.columns(keys)}" if keys else ""
        form = f"SELECT {', '.join(texts)} FROM ({{}}){condition}{grouped}"
        before, _, behind = form.partition("{}")
        made = self.build.made(rows)
        parts = tuple(Part(part.origin, by_spans(by_panes(before + part.sql + behind))) for part in made.parts)
        return Rel((*keys, *(name for name, _ in sums)), parts, False, spread=made.spread)

    def schema(self, rel: Rel) -> pa.Schema:
        part = rel.parts[0]
        assert not isinstance(part.origin, Lazy)
        return self.build.ask(part.sql, changes=part.origin.schema.empty_table())


def _kept(rows: Rel, keys: tuple[str, ...]) -> dict[str, int]:
    return {key: rows.bounds[key] for key in keys if key in rows.bounds}


def _arguments(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value and not isinstance(value, bool)]


def _with(rel: Rel, name: str, text: str) -> Rel:
    return rel.project([*((column, duck.quoted(column)) for column in rel.columns), (name, text)])


def group(build: Build, rows: Rel, keys: tuple[str, ...], asked: Sequence[Asked]) -> tuple[Rel, dict[str, str]]:
    """The groups, and each aggregate's SQL over their columns. `rows` have the keys among their columns."""
    if not rows.columns:  # a count of rows, whatever they are
        rows = rows.project([("one", "1")])
    in_key = rows.lazy is not None and rows.spread is not None and set(rows.spread) <= set(keys)
    if not in_key:
        numbers = Numbers(build, rows)
        if all(numbers.add(each) for each in asked):
            return numbers.node(keys), numbers.made
    texts = [*map(duck.quoted, keys), *(f"{each.text} AS {duck.quoted(each.name)}" for each in asked)]
    grouped = f"GROUP BY {duck.columns(keys)}" if keys else ""
    names = (*keys, *(each.name for each in asked))
    if not names:
        texts, names = ["1 AS one"], ("one",)
    made = {each.name: duck.quoted(each.name) for each in asked}
    if in_key:
        assert rows.lazy is not None
        sql = f"SELECT {', '.join(texts)} FROM ({{}}) {grouped}"
        before, _, behind = sql.partition("{}")
        inner = absorbed(rows.lazy, rows.parts[0].sql)
        always = rows.lazy.always or not keys
        forget = rows.lazy.forget if rows.sessions & set(keys) else None
        whole = Lazy(rows.lazy.inputs, before + inner + behind, rows.lazy.keep, always, forget=forget)
        part = Part(whole, "FROM changes")
        return Rel(names, (part,), False, spread=rows.spread, unique=keys, bounds=_kept(rows, keys)), made
    lazy = Lazy(((rows, keys),), f"SELECT {', '.join(texts)} FROM in0 {grouped}", always=not keys)
    return Rel(names, (Part(lazy, "FROM changes"),), False, spread=keys, unique=keys, bounds=_kept(rows, keys)), made


def is_grouped(select: exp.Select) -> bool:
    return select.args.get("group") is not None or any(
        is_aggregate(node) for item in select.expressions for node in own(item)
    )

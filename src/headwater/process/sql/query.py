"""From a query to relations: SELECTs, what combines them, and the first rows of all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from headwater.process import duck
from headwater.process.keyed.recompute import Recompute
from headwater.process.sql import aggregates
from headwater.process.sql.ordering import ordering
from headwater.process.sql.parse import refuse, sql_type
from headwater.process.sql.relation import Build, Lazy, Part, Rel
from headwater.process.sql.scope import Scope
from headwater.process.sql.select import plan_select
from headwater.records import WEIGHT

SMALL = 100_000
"""Up to so many rows of a LIMIT each bucket first finds its own."""


class Queries:
    def __init__(self, build: Build) -> None:
        self._build = build
        self._numbers = itertools.count()

    def plan(self, query: exp.Expr, known: Mapping[str, Callable[[], Rel]] | None = None) -> Rel:
        """The query's rows, by the names of its columns."""
        names = dict(known or {})
        with_ = query.args.get("with_")
        for cte in with_.expressions if with_ else []:
            names[cte.alias] = self._once(cte.this, dict(names), [column.name for column in cte.args["alias"].columns])
        if isinstance(query, exp.Subquery):
            rel = self.plan(query.this, names)
            return self._limited(query, rel)
        if isinstance(query, exp.SetOperation):
            return self._limited(query, self._set_operation(query, names))
        if not isinstance(query, exp.Select):
            refuse(self._build.view, query, f"{type(query).__name__} in a view", do="Write a SELECT")
        return plan_select(Scope(self, self._build, query, names))

    def _once(self, query: exp.Expr, names: dict[str, Callable[[], Rel]], columns: list[str]) -> Callable[[], Rel]:
        made: list[Rel] = []

        def get() -> Rel:
            if not made:
                rel = self.plan(query, names)
                if columns:
                    rel = rel.project(zip(columns, map(duck.quoted, rel.columns), strict=False))
                made.append(rel)
            return made[0]

        return get

    def fresh(self, letter: str) -> str:
        return f"{letter}{next(self._numbers)}"

    # --- UNION, EXCEPT, INTERSECT ---

    def _set_operation(self, query: exp.SetOperation, names: Mapping[str, Callable[[], Rel]]) -> Rel:
        left, right = self.plan(query.left, names), self.plan(query.right, names)
        if query.args.get("by_name"):
            missing = [
                *(name for name in left.columns if name not in right.columns),
                *(name for name in right.columns if name not in left.columns),
            ]
            if missing:
                refuse(
                    self._build.view,
                    query,
                    f"BY NAME, but {missing[0]!r} is on one side only",
                    do="Select it as NULL there",
                )
            right = right.project((name, duck.quoted(name)) for name in left.columns)
        if len(left.columns) != len(right.columns):
            told = f"{len(left.columns)} and {len(right.columns)} columns"
            refuse(self._build.view, query, f"the two sides have {told}", do="Select the same number of columns")
        left, right = self._same_types(left, right)
        everything = not query.args.get("distinct")
        if isinstance(query, exp.Union):
            both = self.union([left, right])
            return both if everything else self.distinct(both)
        word = "EXCEPT" if isinstance(query, exp.Except) else "INTERSECT"
        sql = f"FROM in0 {word}{' ALL' if everything else ''} FROM in1"
        lazy = Lazy(((left, left.columns), (right, right.columns)), sql)
        unique = None if everything else left.columns
        return Rel(left.columns, (Part(lazy, "FROM changes"),), False, spread=left.columns, unique=unique)

    def _same_types(self, left: Rel, right: Rel) -> tuple[Rel, Rel]:
        schemas = [self._build.schema(side).empty_table() for side in (left, right)]
        right = right.project(zip(left.columns, map(duck.quoted, right.columns), strict=True))
        common = self._build.ask("FROM a UNION ALL FROM b", a=schemas[0], b=schemas[1])
        sides = []
        for side, own_schema in ((left, schemas[0].schema), (right, schemas[1].schema)):
            cast = [
                (name, duck.quoted(name) if kind == had.type else f"{duck.quoted(name)}::{sql_type(kind)}")
                for name, kind, had in zip(left.columns, common.types, own_schema, strict=True)
            ]
            sides.append(side if all(duck.quoted(name) == text for name, text in cast) else side.project(cast))
        return sides[0], sides[1]

    def union(self, rels: Sequence[Rel]) -> Rel:
        made = [self._build.made(rel) for rel in rels]
        parts = tuple(part for rel in made for part in rel.parts)
        shared = set.intersection(*(set(rel.bounds) for rel in made))
        bounds = {name: max(rel.bounds[name] for rel in made) for name in shared}
        past = frozenset.intersection(*(rel.past for rel in made))
        return Rel(made[0].columns, parts, all(rel.append_only for rel in made), bounds=bounds, past=past)

    def distinct(self, rel: Rel) -> Rel:
        grouped, _ = aggregates.group(self._build, rel, rel.columns, [])
        return grouped.project((name, duck.quoted(name)) for name in rel.columns)

    # --- ORDER BY ... LIMIT ---

    def _limited(self, query: exp.Expr, rel: Rel) -> Rel:
        order = [
            (each.this.name, ordering(each))
            for each in (query.args["order"].expressions if query.args.get("order") else [])
        ]
        return self.limited(query, rel, order)

    def limited(self, query: exp.Expr, rel: Rel, order: Sequence[tuple[str, str]]) -> Rel:
        """The first rows by these columns (each with its direction); without a limit their order means nothing."""
        limit, offset = query.args.get("limit"), query.args.get("offset")
        if limit is None and offset is None:
            return rel
        most, skipped = self._number(limit), self._number(offset) or 0
        by = [f"{duck.quoted(name)} {how}" for name, how in order]
        by += [f"{duck.quoted(name)} ASC NULLS LAST" for name in rel.columns if name not in {name for name, _ in order}]
        ordered = f"ORDER BY {', '.join(by)}"
        if most is not None and most + skipped <= SMALL:
            first = f"SELECT * FROM in0 {ordered} LIMIT {most + skipped}"
            rel = self._firsts(rel, first)
        rest = f"{f' LIMIT {most}' if most is not None else ''}{f' OFFSET {skipped}' if skipped else ''}"
        lazy = Lazy(((rel, ()),), f"SELECT * FROM in0 {ordered}{rest}")
        return Rel(rel.columns, (Part(lazy, "FROM changes"),), False, spread=(), unique=rel.unique)

    def _firsts(self, rel: Rel, sql: str) -> Rel:
        """Of each bucket the first rows: only those can be among the first of all."""
        made = self._build.made(rel)
        schema = self._build.schema(made).append(pa.field(WEIGHT, pa.int64()))
        operator = Recompute((schema,), ((),), sql, keep=sql if made.append_only else None)
        spread = made.spread or made.columns
        node = self._build.node(operator, [(made, ())], [schema], spread_by=[spread])
        return Rel(made.columns, (Part(node, "FROM changes"),), False, unique=made.unique)

    def _number(self, node: exp.Expr | None) -> int | None:
        if node is None:
            return None
        value = node.expression
        if not isinstance(value, exp.Literal) or value.is_string or not value.name.isdigit():
            refuse(self._build.view, node, "a LIMIT that is not a number", do="Write LIMIT 10")
        return int(value.name)

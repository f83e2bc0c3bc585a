"""From a query to relations: one SELECT at a time, its parts in the order in which SQL means them.

FROM, joins, subqueries in conditions, WHERE, GROUP BY, HAVING, window functions, QUALIFY, SELECT, DISTINCT, LIMIT
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headwater.process import duck
from headwater.process.keyed.top import Order
from headwater.process.sql import aggregates
from headwater.process.sql.aggregates import Asked, is_aggregate
from headwater.process.sql.joins import Equality, Kind, as_of, join
from headwater.process.sql.parse import DIALECT, function_name, refuse, sql_type
from headwater.process.sql.relation import Build, Lazy, Part, Rel
from headwater.process.sql.settling import BY_PEERS, own
from headwater.process.sql.valid_then import HISTORY
from headwater.process.sql.windows import BOUND
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
        return _Selecting(self, self._build, query, names).plan()

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
            missing = [*(name for name in left.columns if name not in right.columns), *(name for name in right.columns if name not in left.columns)]
            if missing:
                refuse(self._build.view, query, f"BY NAME, but {missing[0]!r} is on one side only", do="Select it as NULL there")
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
            (each.this.name, _ordering(each)) for each in (query.args["order"].expressions if query.args.get("order") else [])
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
        from headwater.process.keyed.recompute import Recompute

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


def _ordering(ordered: exp.Expr) -> str:
    down = bool(ordered.args.get("desc"))
    first = ordered.args.get("nulls_first")
    return f"{'DESC' if down else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"


@dataclass
class _Source:
    alias: str
    rel: Rel
    kind: Kind = "inner"
    on: list[exp.Expr] = field(default_factory=list)
    node: exp.Expr | None = None
    as_of: bool = False


class _Selecting:
    """One SELECT."""

    def __init__(
        self, queries: Queries, build: Build, select: exp.Select, known: Mapping[str, Callable[[], Rel]]
    ) -> None:
        self._queries, self._build, self._select, self._known = queries, build, select, known
        self._view = build.view
        self._replaced: list[tuple[exp.Expr, str]] = []
        """Expressions that have become columns, with their SQL."""
        self.group_count = 0

    def plan(self) -> Rel:
        select = self._select
        rel = self._from()
        grouped = select.args.get("group") is not None or any(
            is_aggregate(node) for part in self._answers() for node in own(part)
        )
        if grouped:
            rel = self._grouped(rel)
        for part in self._answers():
            rel = self._scalar_queries(rel, part)
        if grouped:
            having = select.args.get("having")
            if having is not None:
                rel = self._filtered(rel, having.this)
        elif select.args.get("having") is not None:
            refuse(self._view, select.args["having"], "HAVING without GROUP BY", do="Write WHERE")
        rel = self._windowed(rel)
        if select.args.get("qualify") is not None:
            rel = self._filtered(rel, select.args["qualify"].this)
        rel, order = self._selected(rel)
        if select.args.get("distinct") is not None:
            rel = self._queries.distinct(rel)
        return self._queries.limited(select, rel, order)

    def _answers(self) -> list[exp.Expr]:
        found = list(self._select.expressions)
        for name in ("having", "qualify", "order"):
            if self._select.args.get(name) is not None:
                found.append(self._select.args[name])
        return found

    # --- expressions ---

    def text(self, node: exp.Expr) -> str:
        """The SQL of an expression over the columns of the relation as it is now."""

        def replaced(part: exp.Expr) -> exp.Expr:
            for known, column in self._replaced:
                if part == known:
                    return exp.maybe_parse(column, dialect=DIALECT)
            if isinstance(part, exp.Column) and part.table:
                return exp.column(exp.to_identifier(f"{part.table}.{part.name}", quoted=True))
            if isinstance(part, exp.Subquery | exp.Exists) or (isinstance(part, exp.In) and part.args.get("query")):
                refuse(self._view, part, "a subquery here", do="Write it as a join, or in WHERE joined by AND")
            return part

        return str(node.copy().transform(replaced).sql(dialect=DIALECT))

    # --- FROM and WHERE ---

    def _from(self) -> Rel:
        select = self._select
        source = select.args.get("from_")
        if source is None:
            refuse(self._view, select, "a view without FROM", do="Read at least one topic")
        sources = [self._source(source.this)]
        for node in select.args.get("joins") or []:
            sources.append(self._joined(node))
        where = select.args.get("where")
        pool = _conjuncts(where.this if where else None)
        nested = [part for part in pool if _has_query(part)]
        pool = [part for part in pool if not _has_query(part)]
        nullable = _nullable(sources)
        for each in sources:
            mine = [part for part in pool if _tables(part) == {each.alias} and each.alias not in nullable]
            for part in mine:
                each.rel = self._filtered(each.rel, part)
            pool = [part for part in pool if not any(part is taken for taken in mine)]
        rel = self._all_joined(sources, pool)
        for part in nested:
            rel = self._where_query(rel, part)
        return rel

    def _source(self, node: exp.Expr) -> _Source:
        alias = node.alias_or_name
        if isinstance(node, exp.Subquery):
            return _Source(alias, self._queries.plan(node, self._known).renamed(alias), node=node)
        if not isinstance(node, exp.Table):
            refuse(self._view, node, f"{type(node).__name__.upper()} in FROM", do="Read a topic by its name")
        if node.name in self._known:
            return _Source(alias, self._known[node.name]().renamed(alias), node=node)
        topic = node.name.removeprefix(HISTORY)
        return _Source(alias, self._scan(topic, alias, history=topic != node.name), node=node)

    def _scan(self, topic: str, alias: str, *, history: bool) -> Rel:
        spec = self._build.inputs[topic]
        lowered = {name.lower(): name for name in spec.schema.names}
        root = self._select
        used = {column.name for column in root.find_all(exp.Column) if column.table == alias}
        names = [lowered[name] for name in lowered if name in used] or [spec.schema.names[0]]
        rel = self._build.scan(topic, names, history=history)
        return rel.project((f"{alias}.{name.lower()}", duck.quoted(name)) for name in names)

    def _joined(self, node: exp.Expr) -> _Source:
        source = self._source(node.this)
        side, kind, method = node.side.upper(), node.kind.upper(), node.method.upper()
        if method == "ASOF":
            source.as_of = True
        elif method:
            refuse(self._view, node, f"a {method} JOIN", do="Use JOIN ... ON a.x = b.y")
        kinds: dict[str, Kind] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}
        if kind in ("SEMI", "ANTI"):
            source.kind = "semi" if kind == "SEMI" else "anti"
        elif kind in ("", "INNER", "CROSS", "OUTER") and side in kinds:
            source.kind = kinds[side]
        else:
            refuse(self._view, node, f"a {side} {kind} JOIN", do="Use JOIN, LEFT, RIGHT, FULL, SEMI or ANTI JOIN")
        source.on = _conjuncts(node.args.get("on"))
        source.node = node
        return source

    def _all_joined(self, sources: list[_Source], pool: list[exp.Expr]) -> Rel:
        """From left to right; of inner joins the next one that an equality ties to what is there."""
        first, *waiting = sources
        rel, there = first.rel, {first.alias}
        while waiting:
            run = list(itertools.takewhile(lambda each: each.kind == "inner" and not each.as_of, waiting))
            free = [*pool, *(part for each in run for part in each.on)]
            nearest = next((each for each in run if any(self._equality(part, there, each.alias) for part in free)), None)
            each = nearest or waiting[0]
            waiting.remove(each)
            conditions = list(each.on)
            if each.kind == "inner" and not each.as_of:
                for other in run:
                    if other is not each:
                        mine = [part for part in other.on if _tables(part) <= {*there, each.alias}]
                        other.on = [part for part in other.on if not any(part is taken for taken in mine)]
                        conditions += mine
                usable = [part for part in pool if each.alias in _tables(part) and _tables(part) <= {*there, each.alias}]
                late = [part for part in conditions if not _tables(part) <= {*there, each.alias}]
                pool = [*(part for part in pool if not any(part is taken for taken in usable)), *late]
                conditions = [part for part in conditions if not any(part is other for other in late)] + usable
            rel = self._join(rel, there, each, conditions)
            if each.kind not in ("semi", "anti"):
                there.add(each.alias)
        for part in pool:
            rel = self._filtered(rel, part)
        return rel

    def _join(self, rel: Rel, there: set[str], each: _Source, conditions: list[exp.Expr]) -> Rel:
        assert each.node is not None
        nested = next((part for part in conditions if _has_query(part)), None)
        if nested is not None:
            refuse(self._view, nested, "a subquery in ON", do="Write it in WHERE, or as a join of its own")
        equal, others = [], []
        right = each.rel
        for part in conditions:
            pair = self._equality(part, there, each.alias)
            if pair is not None:
                equal.append(pair)
            elif _tables(part) == {each.alias} and each.kind in ("inner", "left", "semi", "anti") and not each.as_of:
                right = self._filtered(right, part)
            elif _tables(part) <= there and _tables(part) and each.kind in ("inner", "semi", "right") and not each.as_of:
                rel = self._filtered(rel, part)
            else:
                others.append(part)
        if each.as_of:
            return self._as_of(rel, right, there, each, equal, others)
        on = " AND ".join(f"({self.text(part)})" for part in others) or None
        return join(self._build, rel, right, each.kind, equal, on, each.node)

    def _as_of(
        self, rel: Rel, right: Rel, there: set[str], each: _Source, equal: list[Equality], others: list[exp.Expr]
    ) -> Rel:
        assert each.node is not None
        later = None
        flipped = {"GTE": "<=", "GT": "<", "LTE": ">=", "LT": ">"}
        plain = {"GTE": ">=", "GT": ">", "LTE": "<=", "LT": "<"}
        for part in others:
            name = type(part).__name__
            if name in plain and _tables(part.left) <= there and _tables(part.right) == {each.alias}:
                later = (self.text(part.left), plain[name], self.text(part.right))
            elif name in plain and _tables(part.right) <= there and _tables(part.left) == {each.alias}:
                later = (self.text(part.right), flipped[name], self.text(part.left))
        if later is None or len(others) != 1 or each.kind not in ("inner", "left"):
            refuse(
                self._view, each.node, "an ASOF JOIN without one inequality", do="Write ON a.key = b.key AND a.at >= b.at"
            )
        return as_of(
            self._build, rel, right, outer=each.kind == "left", equal=equal, later=later, node=each.node
        )

    def _equality(self, part: exp.Expr, there: set[str], alias: str) -> Equality | None:
        if not isinstance(part, exp.EQ):
            return None
        left, right = _tables(part.left), _tables(part.right)
        if left and right == {alias} and left <= there:
            return Equality(self.text(part.left), self.text(part.right), part)
        if right and left == {alias} and right <= there:
            return Equality(self.text(part.right), self.text(part.left), part)
        return None

    def _filtered(self, rel: Rel, condition: exp.Expr) -> Rel:
        for part in _conjuncts(condition):
            most = self._first_ranks(rel, part)
            rel = rel.where(self.text(part))
            if most is not None:
                rel = most(rel)
        return rel

    def _first_ranks(self, rel: Rel, part: exp.Expr) -> Callable[[Rel], Rel] | None:
        """`rank <= 10` over rows that are only added: those further behind never come back, and need not be kept."""
        lazy = rel.lazy
        if lazy is None or lazy.rank_over is None or not isinstance(part, exp.LTE | exp.LT | exp.EQ):
            return None
        column, value = self.text(part.left).strip('"'), part.right
        if column not in rel.ranks or not isinstance(value, exp.Literal) or not value.name.isdigit():
            return None
        if isinstance(part, exp.EQ) and value.name != "1":
            return None
        sign = "<" if isinstance(part, exp.LT) else "<="
        keep = f"SELECT * EXCLUDE ({duck.quoted(rel.ranks[column])}) FROM ({lazy.rank_over}) WHERE {duck.quoted(rel.ranks[column])} {sign} {value.name}"
        names = duck.columns(lazy.inputs[0][0].columns)
        kept = replace(lazy, keep=f"SELECT {names} FROM ({keep})", rank_over=None)
        if lazy.order is not None:
            most = int(value.name) - isinstance(part, exp.LT)
            kept = replace(kept, top=(rel.ranks[column], most))
        return lambda filtered: replace(filtered, parts=tuple(replace(each, origin=kept) for each in filtered.parts))

    # --- subqueries ---

    def _where_query(self, rel: Rel, part: exp.Expr) -> Rel:
        negated = False
        inner = part
        while isinstance(inner, exp.Not | exp.Paren):
            negated ^= isinstance(inner, exp.Not)
            inner = inner.this
        if isinstance(inner, exp.Exists):
            return self._matched(rel, inner, inner.this, [], negated=negated)
        if isinstance(inner, exp.In) and inner.args.get("query") is not None and not _has_query(inner.this):
            query = inner.args["query"]
            query = query.this if isinstance(query, exp.Subquery) else query
            if negated:
                return self._not_in(rel, inner, query)
            return self._matched(rel, inner, query, [inner.this], negated=False)
        rel = self._scalar_queries(rel, part)
        return self._filtered(rel, part)

    def _matched(self, rel: Rel, node: exp.Expr, query: exp.Expr, tested: list[exp.Expr], *, negated: bool) -> Rel:
        inner, outer = self._correlated(query)
        name = self._queries.fresh("q")
        if tested and isinstance(inner, exp.Select) and len(inner.expressions) != 1:
            refuse(self._view, node, "IN over a query of several columns", do="Select one column")
        equal: list[tuple[exp.Expr, exp.Expr]] = []
        others: list[exp.Expr] = []
        own_names = _own_tables(inner)
        for part in outer:
            sides = (part.left, part.right) if isinstance(part, exp.EQ) else ()
            mine = [side for side in sides if _tables(side) <= own_names and _tables(side)]
            its = [side for side in sides if not _tables(side) & own_names]
            if len(mine) == 1 and len(its) == 1:
                equal.append((its[0], mine[0]))
            else:
                others.append(part)
        if (equal or others) and isinstance(inner, exp.Select) and _is_grouped(inner):
            refuse(self._view, node, "a correlated subquery with its own aggregation here", do="Join with it instead")
        exposed = self._exposed(inner, [mine for _, mine in equal], others, own_names, keep=bool(tested))
        right = self._queries.plan(exposed, self._known).renamed(name)
        columns = [f"{name}.{column}" for column in exposed.named_selects]
        pairs = []
        if tested:
            pairs.append(Equality(self.text(tested[0]), duck.quoted(columns[0]), node))
        for (its, _), place in zip(equal, range(len(tested), len(tested) + len(equal)), strict=True):
            pairs.append(Equality(self.text(its), duck.quoted(columns[place]), node))
        on = " AND ".join(self._mixed(part, own_names, name) for part in others) or None
        return join(self._build, rel, right, "anti" if negated else "semi", pairs, on, node)

    def _exposed(
        self, inner: exp.Expr, keys: list[exp.Expr], others: list[exp.Expr], own_names: set[str], *, keep: bool
    ) -> exp.Query:
        """The subquery with the columns by which it is tied to the outer one."""
        if not isinstance(inner, exp.Select):
            assert isinstance(inner, exp.Query)
            return inner
        shown = inner.copy()
        items = list(shown.expressions) if keep else []
        items += [exp.alias_(key.copy(), f"k{place}") for place, key in enumerate(keys)]
        wanted = {f"{column.table}_{column.name}": column for part in others for column in part.find_all(exp.Column) if column.table in own_names}
        items += [exp.alias_(column.copy(), f"o_{label}") for label, column in wanted.items()]
        if not items:
            items = [exp.alias_(exp.Literal.number(1), "one")]
        if not _is_grouped(inner):
            shown.set("distinct", None)
        shown.set("expressions", items)
        for name in ("order", "limit"):
            if not keep:
                shown.set(name, None)
        return shown

    def _mixed(self, part: exp.Expr, own_names: set[str], name: str) -> str:
        def moved(each: exp.Expr) -> exp.Expr:
            if isinstance(each, exp.Column) and each.table in own_names:
                return exp.column(exp.to_identifier(f"{name}.o_{each.table}_{each.name}", quoted=True))
            return each

        return f"({self.text(part.copy().transform(moved))})"

    def _not_in(self, rel: Rel, node: exp.Expr, query: exp.Expr) -> Rel:
        """x NOT IN q: no row of q is x, and either x and all of q are known, or q is empty."""
        _, outer = self._correlated(query)
        if outer:
            refuse(self._view, node, "NOT IN over a correlated subquery", do="Write NOT EXISTS (... WHERE a = b)")
        assert isinstance(query, exp.Query)
        column = query.named_selects[0]
        rows = self._queries.plan(query, self._known)
        counted, made = aggregates.group(
            self._build,
            rows.project([("x", duck.quoted(column))]),
            (),
            [
                Asked(exp.Count(this=exp.Star()), "count(*)", None, None, "all"),
                Asked(exp.Count(this=exp.column("x")), "count(x)", "x", None, "known"),
            ],
        )
        name = self._queries.fresh("q")
        counts = counted.project([(f"{name}.all", made["all"]), (f"{name}.known", made["known"])])
        rel = join(self._build, rel, counts, "left", [], None, node)
        tested = self.text(node.this)
        full = rel.where(f'coalesce("{name}.all", 0) = 0 OR ({tested} IS NOT NULL AND "{name}.all" = "{name}.known")')
        return self._matched(full, node, query, [node.this], negated=True)

    def _scalar_queries(self, rel: Rel, holder: exp.Expr) -> Rel:
        """Each scalar subquery in the expression becomes a column."""
        for node in [each for each in own(holder) if isinstance(each, exp.Subquery)]:
            if any(node == known for known, _ in self._replaced) or isinstance(node.parent, exp.From | exp.Join | exp.In | exp.Exists):
                continue
            rel = self._scalar(rel, node)
        return rel

    def _scalar(self, rel: Rel, node: exp.Subquery) -> Rel:
        inner, outer = self._correlated(node.this)
        name = self._queries.fresh("q")
        if not isinstance(inner, exp.Select) or len(inner.expressions) != 1:
            refuse(self._view, node, "a subquery of several columns as a value", do="Select one value")
        aggregated = _is_grouped(inner) and inner.args.get("group") is None
        single = aggregated or (inner.args.get("limit") is not None and inner.args["limit"].expression.name == "1")
        if not single:
            refuse(self._view, node, "a subquery as a value that may have several rows", do="Select max(...) or the like")
        if outer and not aggregated:
            refuse(self._view, node, "a correlated subquery with LIMIT", do="Write arg_max(value, at) instead")
        column = inner.expressions[0].alias_or_name
        counts = isinstance(inner.expressions[0].unalias(), exp.Count | exp.CountIf)
        own_names = _own_tables(inner)
        pairs = []
        for part in outer:
            sides = (part.left, part.right) if isinstance(part, exp.EQ) else ()
            mine = [side for side in sides if _tables(side) and _tables(side) <= own_names]
            its = [side for side in sides if not _tables(side) & own_names]
            if len(mine) != 1 or len(its) != 1:
                refuse(self._view, part, "a correlation that is not an equality", do="Write the subquery as a join")
            pairs.append((its[0], mine[0]))
        shown = inner.copy()
        shown.set("expressions", [shown.expressions[0], *(exp.alias_(mine.copy(), f"k{place}") for place, (_, mine) in enumerate(pairs))])
        if pairs:
            shown.set("group", exp.Group(expressions=[mine.copy() for _, mine in pairs]))
        right = self._queries.plan(shown, self._known).renamed(name)
        equal = [Equality(self.text(its), duck.quoted(f"{name}.k{place}"), node) for place, (its, _) in enumerate(pairs)]
        value = duck.quoted(f"{name}.{column}")
        self._replaced.append((node.copy(), f"coalesce({value}, 0)" if counts else value))
        return join(self._build, rel, right, "left", equal, None, node)

    def _correlated(self, query: exp.Expr) -> tuple[exp.Expr, list[exp.Expr]]:
        """The subquery without those of its conditions that speak of columns outside of it, and these."""
        query = query.this if isinstance(query, exp.Subquery) else query
        own_names = {table.alias_or_name for table in query.find_all(exp.Table, exp.Subquery)}
        if not isinstance(query, exp.Select):
            return query, []
        where = query.args.get("where")
        inside = query.copy()
        parts = _conjuncts(where.this if where else None)
        outer = [part for part in parts if not _tables(part) <= own_names]
        left = [part.copy() for part in parts if not any(part is each for each in outer)]
        inside.set("where", exp.Where(this=exp.and_(*left)) if left else None)
        for column in inside.find_all(exp.Column):
            if column.table and column.table not in own_names:
                refuse(self._view, column, f"{column.sql(DIALECT)} is of the outer query", do="Use it in the subquery's WHERE, joined by AND")
        return inside, outer

    # --- GROUP BY ---

    def _grouped(self, rel: Rel) -> Rel:
        select = self._select
        group = select.args.get("group")
        keys = list(group.expressions) if group is not None else []
        sets = self._grouping_sets(keys)
        calls = [node for part in self._answers() for node in own(part) if function_name(node) in ("grouping", "grouping_id")]
        asked = [each for each in self._asked() if not any(each.node is call for call in calls)]
        used = {name for part in self._answers() for name in _columns_in(part)} & set(rel.columns)
        texts = [self.text(key) for key in keys]
        names = self._named(texts) if sets is None else [self._queries.fresh("g") for _ in texts]
        spoken = " ".join(each.text for each in asked)
        other = [
            (name, duck.quoted(name))
            for name in rel.columns
            if name not in names and (name in used or duck.quoted(name) in spoken)
        ]
        if sets is None:
            rows = rel.project([*zip(names, texts, strict=True), *other])
            rows = self._bounded(rel, rows, dict(zip(names, keys, strict=True)))
            grouped, made = aggregates.group(self._build, rows, tuple(names), asked)
        else:
            label = self._queries.fresh("g")
            kinds = self._build.schema(rel.project(zip(names, texts, strict=True)))
            copies = []
            for number, chosen in enumerate(sets):
                shown = [
                    (name, text if place in chosen else f"NULL::{sql_type(kinds.field(name).type)}")
                    for place, (name, text) in enumerate(zip(names, texts, strict=True))
                ]
                copies.append(rel.project([(label, f"{number}::INTEGER"), *shown, *other]))
            rows = self._queries.union(copies)
            grouped, made = aggregates.group(self._build, rows, (label, *names), asked)
            self._grouping_calls(keys, sets, label)
        self._replaced = [
            *((key.copy(), duck.quoted(name)) for key, name in zip(keys, names, strict=True)),
            *((each.node.parent.copy() if isinstance(each.node.parent, exp.Filter) else each.node.copy(), made[each.name]) for each in asked),
            *self._replaced,
        ]
        self._check_grouped(keys, asked)
        return grouped

    def _named(self, texts: list[str]) -> list[str]:
        """Names for the keys that a reader of the plan knows: the columns' own, or what is computed."""
        names: list[str] = []
        for text in texts:
            name = text.replace('"', "")
            names.append(name if len(name) <= 60 and name not in names else self._queries.fresh("g"))
        return names

    def _asked(self) -> list[Asked]:
        found: list[Asked] = []
        for part in self._answers():
            for node in own(part):
                if not is_aggregate(node) or isinstance(node, exp.Filter):
                    continue
                if isinstance(node.parent, exp.Filter) and not is_aggregate(node.parent):
                    continue
                if any(is_aggregate(inner) for inner in own(node) if inner is not node):
                    refuse(self._view, node, "an aggregate of an aggregate", do="Compute the inner one in a subquery")
                whole = node.parent if isinstance(node.parent, exp.Filter) else node
                text = self.text(whole)
                if any(each.text == text for each in found):
                    continue
                condition = self.text(whole.expression.this) if isinstance(whole, exp.Filter) else None
                counted = node.this
                argument = None
                if isinstance(counted, exp.Distinct):
                    argument = self.text(counted.expressions[0])
                elif isinstance(counted, exp.Expr) and not isinstance(counted, exp.Star | exp.Order):
                    argument = self.text(counted)
                found.append(Asked(node, text, argument, condition, self._queries.fresh("a")))
        return found

    def _grouping_sets(self, keys: list[exp.Expr]) -> list[set[int]] | None:
        """For GROUPING SETS, ROLLUP and CUBE: which of the keys each set has. Adds their columns to the keys."""
        several = [key for key in keys if isinstance(key, exp.GroupingSets | exp.Rollup | exp.Cube)]
        if not several:
            return None
        keys[:] = [key for key in keys if not any(key is each for each in several)]
        plain = set(range(len(keys)))

        def place(node: exp.Expr) -> int:
            node = node.this if isinstance(node, exp.Paren) else node
            for number, known in enumerate(keys):
                if known == node:
                    return number
            keys.append(node)
            return len(keys) - 1

        def places(node: exp.Expr) -> set[int]:
            return {place(each) for each in (node.expressions if isinstance(node, exp.Tuple) else [node])}

        def sets_of(node: exp.Expr) -> list[set[int]]:
            members = [places(each) for each in node.expressions]
            if isinstance(node, exp.Rollup):
                return [set().union(*members[:count]) for count in range(len(members), -1, -1)]
            if isinstance(node, exp.Cube):
                chosen = (itertools.combinations(members, count) for count in range(len(members), -1, -1))
                return [set().union(*each) for some in chosen for each in some]
            found: list[set[int]] = []
            for each in node.expressions:
                found += sets_of(each) if isinstance(each, exp.Rollup | exp.Cube) else [places(each)]
            return found

        crossed: list[set[int]] = [plain]
        for node in several:
            crossed = [one | other for one in crossed for other in sets_of(node)]
        return crossed

    def _grouping_calls(self, keys: list[exp.Expr], sets: list[set[int]], label: str) -> None:
        for part in self._answers():
            for node in own(part):
                if function_name(node) in ("grouping", "grouping_id"):
                    asked = [next(n for n, key in enumerate(keys) if key == each) for each in node.expressions]
                    cases = " ".join(
                        f"WHEN {number} THEN {sum((place not in chosen) << (len(asked) - 1 - at) for at, place in enumerate(asked))}"
                        for number, chosen in enumerate(sets)
                    )
                    self._replaced.append((node.copy(), f"(CASE {label} {cases} END)::BIGINT"))

    def _check_grouped(self, keys: list[exp.Expr], asked: list[Asked]) -> None:
        for part in self._answers():
            if part is self._select.args.get("order"):
                continue
            left = part.copy().transform(lambda each: exp.null() if any(each == known for known, _ in self._replaced) else each)
            for column in own(left):
                if isinstance(column, exp.Column) and column.table:
                    refuse(self._view, column, f"{column.sql(DIALECT)} is neither grouped nor aggregated", do="Add it to GROUP BY, or take max(...) of it")

    # --- window functions ---

    def _windowed(self, rel: Rel) -> Rel:
        windows: dict[str, exp.Window] = {}
        for part in self._answers():
            for node in own(part):
                if isinstance(node, exp.Window):
                    windows.setdefault(self.text(node), node)
        if not windows:
            return rel
        partitions = [[self.text(each) for each in node.args.get("partition_by") or []] for node in windows.values()]
        common = [text for text in partitions[0] if all(text in other for other in partitions[1:])]
        named = []
        columns = [(name, duck.quoted(name)) for name in rel.columns]
        for text in common:
            plain = text.strip('"')
            if duck.quoted(plain) == text and plain in rel.columns:
                named.append(plain)
            else:
                named.append(self._queries.fresh("p"))
                columns.append((named[-1], text))
        rows = rel.project(columns)
        ranks = {self._queries.fresh("w"): (text, node) for text, node in windows.items()}
        key = tuple(named)
        lazy = rows.lazy
        if lazy is not None and rows.spread is not None and set(rows.spread) <= set(key):
            from headwater.process.sql.relation import absorbed

            inner, inputs, spread = absorbed(lazy, rows.parts[0].sql), lazy.inputs, rows.spread
            keep = lazy.keep
        else:
            inner, inputs, spread, keep = "SELECT * FROM in0", ((rows, key),), key, None
        shown = ", ".join(f"{text} AS {duck.quoted(name)}" for name, (text, _) in ranks.items())
        made = Lazy(
            inputs,
            f"SELECT *, {shown} FROM ({inner})",
            keep,
            rank_over=self._rank_over(rows, ranks) if inner == "SELECT * FROM in0" else None,
        )
        if made.rank_over is not None:
            made = replace(made, order=self._row_order(next(iter(windows.values())), rows.columns))
        self._replaced = [*((node.copy(), duck.quoted(name)) for name, (_, node) in ranks.items()), *self._replaced]
        ranked = {name: name for name, (_, node) in ranks.items() if function_name(node.this) in ("row_number", "rownumber", *BY_PEERS)}
        return Rel(
            (*rows.columns, *ranks),
            (Part(made, "FROM changes"),),
            False,
            spread=spread,
            unique=rows.unique,
            ranks=ranked,
        )

    def _row_order(self, window: exp.Window, columns: Sequence[str]) -> Order | None:
        """By what rows are numbered; None for ranks that several rows share."""
        order = window.args.get("order")
        if function_name(window.this) not in ("row_number", "rownumber") or order is None:
            return None
        texts = [f"{self.text(each.this)} {_ordering(each)}" for each in order.expressions]
        return tuple((text, tuple(name for name in columns if duck.quoted(name) in text)) for text in texts)

    def _rank_over(self, rows: Rel, ranks: Mapping[str, tuple[str, exp.Expr]]) -> str | None:
        """Only if there is nothing but one rank: another window might need the rows that it leaves out."""
        if not rows.append_only or len(ranks) != 1:
            return None
        ((name, (text, node)),) = ranks.items()
        if function_name(node.this) not in ("row_number", "rownumber", "rank", "dense_rank", "rankdense"):
            return None
        return f"SELECT *, {text} AS {name} FROM in0"

    # --- the SELECT list ---

    def _selected(self, rel: Rel) -> tuple[Rel, list[tuple[str, str]]]:
        names = [item.alias_or_name for item in self._select.expressions]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            refuse(self._view, self._select, f"two columns are called {twice!r}", do="Name one otherwise: ... AS other")
        columns = [(name, self.text(item.unalias())) for name, item in zip(names, self._select.expressions, strict=True)]
        order: list[tuple[str, str]] = []
        hidden: list[tuple[str, str]] = []
        limited = self._select.args.get("limit") is not None or self._select.args.get("offset") is not None
        if self._select.args.get("order") is not None and limited:
            for ordered in self._select.args["order"].expressions:
                node = ordered.this
                text = self.text(node)
                name = node.name if isinstance(node, exp.Column) and not node.table and node.name in names else None
                name = name or next((known for known, given in columns if given == text), None)
                if name is None:
                    name = self._queries.fresh("o")
                    hidden.append((name, text))
                order.append((name, _ordering(ordered)))
        if hidden:
            if self._select.args.get("distinct") is not None:
                refuse(self._view, self._select.args["order"], "DISTINCT ordered by what is not selected", do="Select it")
            shown = rel.project([*columns, *hidden])
            first = self._queries.limited(self._select, shown, order)
            self._select.set("limit", None)
            self._select.set("offset", None)
            return first.project((name, duck.quoted(name)) for name in names), []
        return self._bounded(rel, rel.project(columns), dict(zip(names, self._select.expressions, strict=True))), order

    def _bounded(self, rel: Rel, made: Rel, items: Mapping[str, exp.Expr]) -> Rel:
        """With what is known of times: the start and end of windows over a time that is bounded itself."""
        found = dict(made.bounds)
        for name, item in items.items():
            told = item.unalias().meta.get(BOUND)
            if told is not None and told[0].lower() in rel.past:
                found[name] = told[1]
        return replace(made, bounds=found)


# --- pieces ----------------------------------------------------------------------------------------


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None:
        return []
    if isinstance(condition, exp.Paren) and isinstance(condition.this, exp.And | exp.Paren):
        return _conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*_conjuncts(condition.left), *_conjuncts(condition.right)]
    return [condition]


def _tables(node: exp.Expr) -> set[str]:
    return {column.table for column in node.find_all(exp.Column) if column.table}


def _columns_in(node: exp.Expr) -> Iterator[str]:
    for column in node.find_all(exp.Column):
        yield f"{column.table}.{column.name}"


def _has_query(node: exp.Expr) -> bool:
    return node.find(exp.Query) is not None


def _own_tables(query: exp.Expr) -> set[str]:
    names = set()
    source = query.args.get("from_")
    for holder in [source, *(query.args.get("joins") or [])]:
        if holder is not None:
            names.add(holder.this.alias_or_name)
    return names


def _is_grouped(select: exp.Select) -> bool:
    return select.args.get("group") is not None or any(
        is_aggregate(node) for item in select.expressions for node in own(item)
    )


def _nullable(sources: list[_Source]) -> set[str]:
    """The names whose columns may be null because nothing matched: a condition on them comes after the join."""
    found: set[str] = set()
    for place, each in enumerate(sources):
        if each.kind in ("left", "full") or each.as_of:
            found.add(each.alias)
        if each.kind in ("right", "full"):
            found |= {other.alias for other in sources[:place]}
    return found


def used_types(schema: pa.Schema) -> list[Any]:
    return [field.type for field in schema]

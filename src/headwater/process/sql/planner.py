"""From a SELECT to a plan: what each input must deliver, one join at most, then one aggregation.

    SELECT <scalar expressions over group keys and counts>
    FROM a [JOIN b ON a.x = b.y [AND ...]] [WHERE ...] GROUP BY <expressions> [HAVING ...]

Conditions on one input run in its source task; the rest runs in the join. The group's columns are computed before the
aggregation, the SELECT list after it, over the old row and the new one alike, so HAVING is a filter there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from headwater.errors import SqlRefused
from headwater.log.spec import TopicSpec
from headwater.process import duck
from headwater.process.keyed.aggregate import ROWS, Aggregate
from headwater.process.keyed.join import Join
from headwater.process.keyed.memory import MemoryState
from headwater.process.plan import CHANGES, Level, Plan, Read
from headwater.process.sql.parse import DIALECT, parse, refuse
from headwater.records import WEIGHT


def plan_view(view: str, sql: str, inputs: Mapping[str, TopicSpec], *, key: tuple[str, ...] | None = None) -> Plan:
    """The plan of a view's SQL over these topics, or `SqlRefused`, before anything runs."""
    select = parse(view, sql, {name: spec.schema for name, spec in inputs.items()})
    tables = _tables(view, select, inputs)
    grouped = _Grouped.of(view, select)
    if len(tables) == 1:
        reads, levels = _single(select, tables[0], grouped)
    else:
        reads, levels = _joined(view, select, tables, grouped)

    last = levels[-1].operator.step(MemoryState(), {}, None).rows
    condition = f" WHERE {grouped.having}" if grouped.having else ""
    output = f"SELECT {grouped.output}, {WEIGHT} FROM {CHANGES}{condition}"
    schema = _schema(view, output, **{CHANGES: last}).remove(len(grouped.names))
    view_key = key or grouped.selected_keys()
    if not view_key:
        raise SqlRefused(
            view=view,
            construct="the grouping columns are not all selected, so its rows have no key",
            do="Select them, or say key='...'",
        )
    for name in view_key:
        if name not in schema.names:
            raise SqlRefused(view=view, construct=f"no column {name!r} for the key", do=f"Columns: {schema.names}")
    final = Level(levels[-1].operator, output, view_key)
    return Plan(view=view, sql=sql, reads=reads, levels=(*levels[:-1], final), schema=schema, key=view_key)


# --- what stands in FROM ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    alias: str
    spec: TopicSpec
    columns: tuple[str, ...]

    def read(self, output: str, key: tuple[str, ...], where: Sequence[exp.Expr]) -> Read:
        """Equal rows are summed before they travel: less to move, less to keep."""
        condition = f" WHERE {' AND '.join(_sql(part) for part in where)}" if where else ""
        weight = f"sum({WEIGHT})::BIGINT" if self.spec.weighted else "count(*)"
        sql = (
            f"SELECT {output}, {weight} AS {WEIGHT} FROM {CHANGES} AS {duck.quoted(self.alias)}{condition} GROUP BY ALL"
        )
        needed = (*self.columns, WEIGHT) if self.spec.weighted else self.columns
        return Read(topic=self.spec.name, columns=needed, sql=sql, key=key)

    def sample(self) -> pa.Table:
        return self.spec.stored.empty_table()


def _tables(view: str, select: exp.Select, inputs: Mapping[str, TopicSpec]) -> list[_Table]:
    joins = select.args.get("joins") or []
    if len(joins) > 1:
        refuse(view, joins[1], "a second JOIN cannot be maintained yet", do="Join two inputs")
    for join in joins:
        if join.side or join.kind not in ("", "INNER") or join.method:
            told = " ".join(filter(None, (join.method, join.side, join.kind)))
            refuse(view, join, f"a {told} JOIN cannot be maintained yet", do="Use an inner JOIN ... ON a.x = b.y")
    source = select.args.get("from_") or select.args.get("from")
    if source is None:
        refuse(view, select, "a view without FROM", do="Read at least one topic")
    found = []
    for table in [source.this, *(join.this for join in joins)]:
        spec = inputs[table.name]
        if spec.upsert:
            told = f"{table.name!r} holds upserts, which cannot be read by a view yet"
            refuse(view, table, told, do="Make the table without upsert=True and append old rows with _weight -1")
        named = {column.name for column in select.find_all(exp.Column) if column.table == table.alias_or_name}
        used = tuple(name for name in spec.schema.names if name in named)
        # A read wants a column to count rows by, even where the query names none.
        found.append(_Table(table.alias_or_name, spec, used or (spec.schema.names[0],)))
    return found


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition] if condition else []


def _of(node: exp.Expr) -> set[str]:
    return {column.table for column in node.find_all(exp.Column)}


def _where(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    return _conjuncts(where.this if where else None)


# --- the two forms ---------------------------------------------------------------------------------


def _single(select: exp.Select, table: _Table, grouped: _Grouped) -> tuple[tuple[Read, ...], list[Level]]:
    read = table.read(grouped.input, grouped.keys, _where(select))
    arriving = _schema(grouped.view, read.sql, **{CHANGES: table.sample()})
    return (read,), [Level(grouped.aggregate(arriving), None, ())]


def _joined(
    view: str, select: exp.Select, tables: list[_Table], grouped: _Grouped
) -> tuple[tuple[Read, ...], list[Level]]:
    left, right = tables
    join = select.args["joins"][0]
    pairs: list[tuple[exp.Column, exp.Column]] = []
    own: dict[str, list[exp.Expr]] = {left.alias: [], right.alias: []}
    both: list[exp.Expr] = []
    for part in [*_conjuncts(join.args.get("on")), *_where(select)]:
        pair = _pair(part, left, right)
        sides = _of(part)
        if pair is not None:
            pairs.append(pair)
        elif len(sides) == 1:
            own[sides.pop()].append(part)
        else:
            both.append(part)
    if not pairs:
        refuse(view, join, "a JOIN without an equality of two columns", do="Add ON a.x = b.y")

    left_key = tuple(_flat(column) for column, _ in pairs)
    right_key = tuple(_flat(column) for _, column in pairs)
    reads = tuple(
        table.read(
            ", ".join(
                f"{_sql(exp.column(name, table.alias))} AS {_flat_name(table.alias, name)}" for name in table.columns
            ),
            key,
            own[table.alias],
        )
        for table, key in ((left, left_key), (right, right_key))
    )
    schemas = [_schema(view, read.sql, **{CHANGES: t.sample()}) for read, t in zip(reads, tables, strict=True)]
    for a, b in pairs:
        kinds = schemas[0].field(_flat(a)).type, schemas[1].field(_flat(b)).type
        if kinds[0] != kinds[1] and not all(pa.types.is_integer(kind) for kind in kinds):
            refuse(view, a, f"{_sql(a)} is {kinds[0]}, {_sql(b)} is {kinds[1]}", do="Join columns of the same type")

    side = {left.alias: "l", right.alias: "r"}
    operator = Join(
        left=schemas[0],
        right=schemas[1],
        left_key=left_key,
        right_key=right_key,
        output=_renamed(grouped.input_expressions, side),
        where=" AND ".join(f"({_sql(_moved(part, side))})" for part in both) or None,
    )
    joined = operator.step(MemoryState(), {}, None).rows.schema
    return reads, [Level(operator, None, grouped.keys), Level(grouped.aggregate(joined), None, ())]


def _pair(part: exp.Expr, left: _Table, right: _Table) -> tuple[exp.Column, exp.Column] | None:
    if isinstance(part, exp.EQ) and isinstance(part.left, exp.Column) and isinstance(part.right, exp.Column):
        by_table = {part.left.table: part.left, part.right.table: part.right}
        if set(by_table) == {left.alias, right.alias}:
            return by_table[left.alias], by_table[right.alias]
    return None


def _flat(column: exp.Column) -> str:
    return _flat_name(column.table, column.name).strip('"')


def _flat_name(alias: str, name: str) -> str:
    return duck.quoted(f"{alias}.{name}")


def _moved(node: exp.Expr, side: Mapping[str, str]) -> exp.Expr:
    """The same expression over the rows that the join sees: `alias.column` is a column of `l` or `r`."""

    def move(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column):
            return exp.column(exp.to_identifier(_flat(part), quoted=True), side[part.table])
        return part

    return node.copy().transform(move)


def _renamed(expressions: Mapping[str, exp.Expr], side: Mapping[str, str]) -> str:
    return ", ".join(f"{_sql(_moved(node, side))} AS {duck.quoted(name)}" for name, node in expressions.items())


# --- GROUP BY --------------------------------------------------------------------------------------


@dataclass
class _Grouped:
    """The SELECT list taken apart: what goes into the aggregation, what it counts, what is made of its answer."""

    view: str
    input_expressions: dict[str, exp.Expr] = field(default_factory=dict)
    key_count: int = 0
    counts: list[tuple[str, str]] = field(default_factory=list)
    distinct: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    outputs: list[exp.Expr] = field(default_factory=list)
    having: str | None = None

    @classmethod
    def of(cls, view: str, select: exp.Select) -> _Grouped:
        group = select.args.get("group")
        if group is None or not group.expressions:
            refuse(
                view,
                select,
                "a view without GROUP BY cannot be maintained yet",
                do="Group by the columns that make the view's key",
            )
        self = cls(view)
        for expression in group.expressions:
            self.input_expressions[f"g{self.key_count}"] = expression
            self.key_count += 1
        for item in select.expressions:
            self.names.append(item.alias_or_name)
            self.outputs.append(self._over_answer(item.unalias()))
        having = select.args.get("having")
        self.having = _sql(self._over_answer(having.this)) if having else None
        return self

    def _over_answer(self, node: exp.Expr) -> exp.Expr:
        """The expression with its group keys and counts replaced by columns of the aggregation's answer."""

        def replace(part: exp.Expr) -> exp.Expr:
            for name in self.keys:
                if part == self.input_expressions[name]:
                    return exp.column(name)
            if isinstance(part, exp.AggFunc):
                return exp.column(self._counted(part))
            return part

        replaced = node.copy().transform(replace)
        for column in replaced.find_all(exp.Column):
            if column.table:
                refuse(
                    self.view, column, f"{column.sql(DIALECT)} is neither grouped nor counted", do="Add it to GROUP BY"
                )
        return replaced

    def _counted(self, node: exp.AggFunc) -> str:
        if not isinstance(node, exp.Count) or node.args.get("big_int") is False:
            refuse(
                self.view,
                node,
                f"{node.sql_name()} cannot be maintained yet",
                do="Use count(...) or count(DISTINCT ...)",
            )
        counted = node.this
        if counted is None or isinstance(counted, exp.Star | exp.Literal):
            return ROWS
        if node.expressions or (isinstance(counted, exp.Distinct) and len(counted.expressions) != 1):
            refuse(self.view, node, "count of several columns cannot be maintained yet", do="Count one column")
        if isinstance(counted, exp.Distinct):
            return self._named(self.distinct, "d", counted.expressions[0])
        return self._named(self.counts, "c", counted)

    def _named(self, among: list[tuple[str, str]], letter: str, node: exp.Expr) -> str:
        column = next((name for name, known in self.input_expressions.items() if known == node), None)
        if column is None:
            column = f"x{len(self.input_expressions)}"
            self.input_expressions[column] = node
        for name, counted in among:
            if counted == column:
                return name
        among.append((f"{letter}{len(among)}", column))
        return among[-1][0]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(f"g{number}" for number in range(self.key_count))

    @property
    def input(self) -> str:
        return ", ".join(f"{_sql(node)} AS {name}" for name, node in self.input_expressions.items())

    @property
    def output(self) -> str:
        pairs = zip(self.outputs, self.names, strict=True)
        return ", ".join(f"{_sql(node)} AS {duck.quoted(name)}" for node, name in pairs)

    def aggregate(self, arriving: pa.Schema) -> Aggregate:
        return Aggregate(arriving, self.keys, tuple(self.counts), tuple(self.distinct))

    def selected_keys(self) -> tuple[str, ...]:
        """The output columns that are the group's columns, if all of them are selected."""
        plain = {
            node.name: name
            for node, name in zip(self.outputs, self.names, strict=True)
            if isinstance(node, exp.Column) and node.name in self.keys
        }
        return tuple(plain[key] for key in self.keys) if len(plain) == len(self.keys) else ()


# --- asking DuckDB ---------------------------------------------------------------------------------


def _schema(view: str, sql: str, **samples: pa.Table) -> pa.Schema:
    import duckdb

    try:
        return duck.run(sql, **samples).schema
    except duckdb.Error as error:
        raise SqlRefused(view=view, construct=f"DuckDB says: {error}", do="Correct the expression") from None


def _sql(node: exp.Expr) -> str:
    return node.sql(dialect=DIALECT)

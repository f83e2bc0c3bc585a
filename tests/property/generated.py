"""Random queries over the topics of changes.py, in DuckDB's own SQL: constructs nested in each other, up to three deep.

Each has one answer: what SQL leaves open (ties, the order of a list) is not asked for, and sums of floats, of which two
orders give two answers, are neither compared nor grouped by. So DuckDB itself, given the same text, is the oracle.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Kind = Literal["int", "text", "float", "time", "rough"]
"""A `rough` value is a float that depends on the order of a sum: it is shown and nothing else."""

_TOPICS: dict[str, list[tuple[str, Kind]]] = {
    "clicks": [
        ("id", "int"), ("user_id", "int"), ("page", "text"), ("n", "int"), ("price", "float"), ("at", "time"),
    ],
    "users": [("user_id", "int"), ("country", "text"), ("age", "int")],
    "rates": [("country", "text"), ("rate", "int"), ("at", "time")],
}  # fmt: skip
T = TypeVar("T")
_MOST_ROWS = 3
"""How many topics a query may multiply with each other: what is nested counts."""


@dataclass(frozen=True)
class Column:
    sql: str
    kind: Kind


@dataclass(frozen=True)
class Rows:
    """What stands in FROM, with its columns as others may speak of them."""

    sql: str
    columns: tuple[Column, ...]
    weight: int = 1


def generated(seed: int) -> str:
    chance = random.Random(seed)
    return _Query(chance).select(depth=chance.choice([1, 2, 2, 3]), outermost=True)[0]


class _Query:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names = 0

    def select(self, depth: int, *, outermost: bool = False) -> tuple[str, list[Column], int]:
        """Its SQL, its columns by their names, and how many topics it multiplies."""
        made = self._chance.choice(
            [
                self._plain, self._plain, self._joined, self._joined, self._grouped, self._grouped, self._windowed,
                self._distinct, self._sets, self._first_rows, self._tested, self._tested, self._valued, self._twice,
            ]
        )  # fmt: skip
        sql, columns, weight = made(depth)
        if outermost:
            return sql, columns, weight
        plain = self._plainly(columns)
        return (sql, plain, weight) if plain else self.select(depth)

    # --- what is read ---

    def _source(self, depth: int) -> Rows:
        name = self._name("t")
        if depth <= 0 or self._chance.random() < 0.3:
            topic = self._chance.choice(["clicks", "clicks", "users", "rates"])
            columns = tuple(Column(f"{name}.{column}", kind) for column, kind in _TOPICS[topic])
            return Rows(f"{topic} AS {name}", columns)
        sql, inner, weight = self.select(depth - 1)
        return Rows(f"({sql}) AS {name}", tuple(Column(f"{name}.{each.sql}", each.kind) for each in inner), weight)

    def _sources(self, depth: int, most: int = 3) -> Rows:
        rows = self._source(depth)
        for _ in range(self._chance.randrange(most)):
            other = self._source(depth - 1)
            if rows.weight + other.weight > _MOST_ROWS:
                break
            rows = self._join(rows, other)
        return rows

    def _join(self, left: Rows, right: Rows) -> Rows:
        kind = self._chance.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"])
        pairs = [(a, b) for a in left.columns for b in right.columns if a.kind == b.kind and a.kind in ("int", "text")]
        conditions = [f"{a.sql} = {b.sql}" for a, b in self._some(pairs, 1, 2)]
        if not conditions and kind == "FULL JOIN":
            kind = "JOIN"
        if not conditions or self._chance.random() < 0.3:
            conditions.append(self._condition([*left.columns, *right.columns]))
        weight = left.weight + right.weight
        if kind in ("SEMI JOIN", "ANTI JOIN"):
            return Rows(f"{left.sql} {kind} {right.sql} ON {' AND '.join(conditions)}", left.columns, left.weight)
        columns = (*left.columns, *right.columns)
        return Rows(f"{left.sql} {kind} {right.sql} ON {' AND '.join(conditions)}", columns, weight)

    # --- SELECTs of every form ---

    def _plain(self, depth: int) -> tuple[str, list[Column], int]:
        rows = self._source(depth)
        return self._shown(rows, self._where(rows))

    def _joined(self, depth: int) -> tuple[str, list[Column], int]:
        rows = self._sources(depth)
        return self._shown(rows, self._where(rows))

    def _distinct(self, depth: int) -> tuple[str, list[Column], int]:
        rows = self._sources(depth, 2)
        return self._shown(rows, self._where(rows), "SELECT DISTINCT")

    def _grouped(self, depth: int) -> tuple[str, list[Column], int]:
        rows = self._sources(depth)
        keys = self._values(rows.columns, 0, 2)
        counted = [self._aggregate(rows.columns) for _ in range(self._chance.randint(0 if keys else 1, 3))]
        items, columns = self._named([*keys, *counted])
        grouped = self._group_by([key.sql for key in keys])
        having = ""
        if self._chance.random() < 0.3:
            asked = self._aggregate(rows.columns, rough=False)
            having = f" HAVING {self._condition([asked])}"
            if self._chance.random() < 0.3:
                inner = self._source(depth - 2)
                most = self._aggregate([c for c in inner.columns if c.kind == asked.kind] or inner.columns, rough=False)
                if most.kind == asked.kind:
                    having = f" HAVING {asked.sql} >= (SELECT {most.sql} FROM {inner.sql})"
        return f"SELECT {items} FROM {rows.sql}{self._where(rows)}{grouped}{having}", columns, rows.weight

    def _group_by(self, keys: list[str]) -> str:
        if not keys:
            return ""
        form = self._chance.choice(["{}"] * 6 + ["ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())"])
        return f" GROUP BY {form.format(', '.join(keys))}"

    def _windowed(self, depth: int) -> tuple[str, list[Column], int]:
        rows = self._sources(depth, 2)
        values = self._values(rows.columns, 1, 2)
        windows = [self._window(rows.columns) for _ in range(self._chance.randint(1, 2))]
        items, columns = self._named([*values, *windows])
        qualify = ""
        if self._chance.random() < 0.4:
            qualify = f" QUALIFY {self._window(rows.columns, rank=True).sql} <= {self._chance.randint(1, 3)}"
        return f"SELECT {items} FROM {rows.sql}{self._where(rows)}{qualify}", columns, rows.weight

    def _window(self, columns: Sequence[Column], *, rank: bool = False) -> Column:
        keys = ", ".join(column.sql for column in self._some(self._plainly(columns), 0, 2))
        order = ", ".join(self._ordered(column.sql) for column in self._some(self._plainly(columns), 1, 2))
        over = f"({f'PARTITION BY {keys} ' if keys else ''}ORDER BY {order})"
        whole = f"({f'PARTITION BY {keys}' if keys else ''})"
        ranked = self._chance.choice(["rank", "dense_rank"])
        if rank or self._chance.random() < 0.4:
            return Column(f"{ranked}() OVER {over}", "int")
        asked = self._aggregate(columns, rough=False, plain=True)
        numbers = [column.sql for column in columns if column.kind == "int"]
        frames = [over, whole]
        if numbers:
            by = f"PARTITION BY {keys} " if keys else ""
            frames.append(f"({by}ORDER BY {self._chance.choice(numbers)} RANGE 1 PRECEDING)")
        return Column(f"{asked.sql} OVER {self._chance.choice(frames)}", asked.kind)

    def _sets(self, depth: int) -> tuple[str, list[Column], int]:
        left, right = self._sources(depth - 1, 2), self._sources(depth - 1, 2)
        kinds = [self._chance.choice(["int", "text"]) for _ in range(self._chance.randint(1, 2))]
        sides: list[str] = []
        named: list[Column] = []
        for rows in (left, right):
            items, columns = self._named([self._value(rows.columns, kind) for kind in kinds])
            sides.append(f"SELECT {items} FROM {rows.sql}{self._where(rows)}")
            named = named or columns
        word = self._chance.choice(["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"])
        return f"{sides[0]} {word} {sides[1]}", named, left.weight + right.weight

    def _first_rows(self, depth: int) -> tuple[str, list[Column], int]:
        rows = self._sources(depth, 2)
        values = [value for value in self._values(rows.columns, 1, 3) if value.kind != "rough"]
        items, columns = self._named(values)
        order = ", ".join(self._ordered(column.sql) for column in columns)
        offset = f" OFFSET {self._chance.randint(1, 2)}" if self._chance.random() < 0.3 else ""
        limit = f" ORDER BY {order} LIMIT {self._chance.randint(1, 5)}{offset}"
        return f"SELECT {items} FROM {rows.sql}{self._where(rows)}{limit}", columns, rows.weight

    def _tested(self, depth: int) -> tuple[str, list[Column], int]:
        """WHERE with a query in it."""
        rows = self._sources(depth, 2)
        test = self._query_test(rows, depth - 1)
        if self._chance.random() < 0.3:
            test = self._chance.choice(["({} OR {})", "NOT ({} AND {})"]).format(test, self._condition(rows.columns))
        return self._shown(rows, self._where(rows, test))

    def _query_test(self, rows: Rows, depth: int) -> str:
        outer = self._value(rows.columns, self._chance.choice(["int", "text"]))
        inner = self._source(depth)
        tied = [(a, b) for a in rows.columns for b in inner.columns if a.kind == b.kind and a.kind in ("int", "text")]
        equality = [f"{a.sql} = {b.sql}" for a, b in self._some(tied, 1, 1)]
        form = self._chance.choice(["IN", "NOT IN", "EXISTS", "NOT EXISTS", "scalar", "correlated IN", "pairs"])
        if form == "pairs":
            other = self._value(rows.columns, "int")
            shown = ", ".join(self._value(inner.columns, each.kind).sql for each in (outer, other))
            return f"({outer.sql}, {other.sql}) IN (SELECT {shown} FROM {inner.sql}{self._where(inner)})"
        if form in ("EXISTS", "NOT EXISTS") and equality:
            more = [self._condition([*rows.columns, *inner.columns])] if self._chance.random() < 0.4 else []
            return f"{form} (SELECT 1 FROM {inner.sql} WHERE {' AND '.join([*equality, *more])})"
        if form == "scalar" or (form not in ("IN", "NOT IN") and not equality):
            asked = self._aggregate(inner.columns, rough=False)
            correlated = f" WHERE {equality[0]}" if equality and self._chance.random() < 0.5 else ""
            tested = self._value(rows.columns, asked.kind)
            sign = self._chance.choice(["<", ">=", "="])
            return f"{tested.sql} {sign} (SELECT {asked.sql} FROM {inner.sql}{correlated})"
        shown = self._value(inner.columns, outer.kind)
        correlated = f" WHERE {equality[0]}" if form == "correlated IN" else self._where(inner)
        word = "NOT IN" if form == "NOT IN" or self._chance.random() < 0.2 else "IN"
        return f"{outer.sql} {word} (SELECT {shown.sql} FROM {inner.sql}{correlated})"

    def _valued(self, depth: int) -> tuple[str, list[Column], int]:
        """SELECT with a query as a value."""
        rows = self._source(depth)
        inner = self._source(depth - 1)
        tied = [(a, b) for a in rows.columns for b in inner.columns if a.kind == b.kind and a.kind in ("int", "text")]
        correlated = "".join(f" WHERE {a.sql} = {b.sql}" for a, b in self._some(tied, 0, 1))
        asked = self._aggregate(inner.columns, rough=False)
        value = Column(f"(SELECT {asked.sql} FROM {inner.sql}{correlated})", asked.kind)
        items, columns = self._named([*self._values(rows.columns, 1, 2), value])
        return f"SELECT {items} FROM {rows.sql}{self._where(rows)}", columns, rows.weight

    def _twice(self, depth: int) -> tuple[str, list[Column], int]:
        """One query under a name, joined with itself."""
        sql, inner, weight = self.select(depth - 1)
        name, left, right = self._name("w"), self._name("t"), self._name("t")
        if weight * 2 > _MOST_ROWS:
            return sql, inner, weight
        sides = [
            Rows(f"{name} AS {alias}", tuple(Column(f"{alias}.{each.sql}", each.kind) for each in inner), weight)
            for alias in (left, right)
        ]
        shown, columns, weight = self._shown(self._join(*sides), "")
        return f"WITH {name} AS ({sql}) {shown}", columns, weight

    # --- parts of them ---

    def _shown(self, rows: Rows, where: str, select: str = "SELECT") -> tuple[str, list[Column], int]:
        items, columns = self._named(self._values(rows.columns, 1, 4))
        return f"{select} {items} FROM {rows.sql}{where}", columns, rows.weight

    def _where(self, rows: Rows, *more: str) -> str:
        conditions = [self._condition(rows.columns) for _ in range(self._chance.choice([0, 0, 1, 2]))]
        return f" WHERE {' AND '.join([*conditions, *more])}" if conditions or more else ""

    def _named(self, values: Sequence[Column]) -> tuple[str, list[Column]]:
        columns = [Column(self._name("c"), value.kind) for value in values]
        items = ", ".join(f"{value.sql} AS {column.sql}" for value, column in zip(values, columns, strict=True))
        return items, columns

    def _values(self, columns: Sequence[Column], least: int, most: int) -> list[Column]:
        kinds: list[Kind] = [self._chance.choice(self._plainly(columns) or list(columns)).kind for _ in range(most)]
        found = [self._value(columns, kind) for kind in kinds[: self._chance.randint(least, most)]]
        return list({value.sql: value for value in found}.values())

    def _value(self, columns: Sequence[Column], kind: Kind) -> Column:
        """An expression of that kind, over a column where there is one."""
        of_kind = [column for column in columns if column.kind == kind]
        if not of_kind:
            return self._of_another(columns, kind)
        x = self._chance.choice(of_kind).sql
        y = self._chance.choice(of_kind).sql
        forms: dict[Kind, list[str]] = {
            "int": [x] * 6 + [f"{x} + 1", f"{x} - {y}", f"coalesce({x}, {y})", f"{x} % 3", f"abs({x})",
                    f"CASE WHEN {self._condition(columns)} THEN {x} ELSE {y} END", f"nullif({x}, 2)"],
            "text": [x] * 6 + [f"upper({x})", f"{x} || {y}", f"coalesce({x}, '-')", f"substr({x}, 1, 1)"],
            "float": [x] * 4 + [f"{x} * 2", f"CASE WHEN {self._condition(columns)} THEN {x} END"],
            "time": [x] * 4 + [f"date_trunc('minute', {x})", f"{x} + INTERVAL '1 hour'"],
            "rough": [x],
        }  # fmt: skip
        return Column(self._chance.choice(forms[kind]), kind)

    def _of_another(self, columns: Sequence[Column], kind: Kind) -> Column:
        x = self._chance.choice(self._plainly(columns) or list(columns)).sql
        made: dict[Kind, str] = {
            "int": f"length(({x})::VARCHAR)",
            "text": f"({x})::VARCHAR",
            "float": f"length(({x})::VARCHAR) / 2",
            "time": f"TIMESTAMPTZ '2026-01-01 00:01:00+00' + length(({x})::VARCHAR) * INTERVAL '1 minute'",
            "rough": f"length(({x})::VARCHAR) / 2",
        }
        return Column(made[kind], kind)

    def _aggregate(self, columns: Sequence[Column], *, rough: bool = True, plain: bool = False) -> Column:
        known = self._plainly(columns)
        column = self._chance.choice(known)
        x, kind = column.sql, column.kind
        forms: list[tuple[str, Kind]] = [
            ("count(*)", "int"),
            (f"count({x})", "int"),
            (f"min({x})", kind),
            (f"max({x})", kind),
        ]
        forms += [(f"count(DISTINCT {x})", "int")] if not plain else []
        if kind == "int":
            forms += [(f"sum({x})", "int"), (f"sum({x})", "int")]
            forms += [(f"avg({x})", "rough"), (f"stddev_pop({x})", "rough"), (f"median({x})", "rough")] if rough else []
            forms += [(f"sum(DISTINCT {x})", "int"), (f"bit_xor({x})", "int")] if not plain else []
            forms += [(f"quantile_disc({x}, 0.5)", "int")] if not plain else []
        if kind == "float" and rough:
            forms += [(f"sum({x})", "rough"), (f"avg({x})", "rough")]
        if kind == "text" and not plain:
            forms += [(f"string_agg({x}, ',' ORDER BY {x})", "text"), (f"arg_max({x}, {x})", "text")]
        sql, answered = self._chance.choice(forms)
        if not plain and self._chance.random() < 0.2:
            sql += f" FILTER (WHERE {self._condition(columns)})"
        return Column(sql, answered)

    def _condition(self, columns: Sequence[Column]) -> str:
        column = self._chance.choice(self._plainly(columns))
        x = column.sql
        same = [other.sql for other in columns if other.kind == column.kind]
        sign = self._chance.choice(["<", "<=", ">", ">=", "=", "<>"])
        forms: dict[Kind, Callable[[], list[str]]] = {
            "int": lambda: [f"{x} {sign} {self._chance.randrange(6)}", f"{x} BETWEEN 1 AND 4", f"{x} IN (0, 2, 3)"],
            "text": lambda: [f"{x} {sign} '/b'", f"{x} LIKE '%e%'", f"{x} IN ('de', '/a')", f"length({x}) > 2"],
            "float": lambda: [f"{x} {sign} 0.2"],
            "time": lambda: [f"{x} {sign} TIMESTAMPTZ '2026-01-01 00:0{self._chance.randrange(5)}:00+00'"],
            "rough": lambda: [f"{x} IS NULL"],
        }
        every = [*forms[column.kind](), f"{x} IS NOT NULL", f"{x} {sign} {self._chance.choice(same)}"]
        found = self._chance.choice(every)
        dice = self._chance.random()
        if dice < 0.1:
            return f"NOT ({found})"
        if dice < 0.2:
            return f"({found} OR {self._condition(columns)})"
        return found

    def _ordered(self, text: str) -> str:
        return text + self._chance.choice(["", " DESC", " NULLS FIRST", " DESC NULLS LAST"])

    def _plainly(self, columns: Sequence[Column]) -> list[Column]:
        """Those whose values can be compared."""
        return [column for column in columns if column.kind != "rough"]

    def _some(self, of: Sequence[T], least: int, most: int) -> list[T]:
        return self._chance.sample(list(of), min(len(of), self._chance.randint(least, most)))

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

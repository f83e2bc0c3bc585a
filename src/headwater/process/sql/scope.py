"""One SELECT while it is planned: what it reads, and which of its expressions have become columns by now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.process.sql.calendar import asks_the_calendar, in_utc
from headwater.process.sql.moments import Now, speaks_of_now, there_between
from headwater.process.sql.parse import DIALECT, conjuncts, refuse
from headwater.process.sql.ranking import kept_first
from headwater.process.sql.relation import Build, Rel
from headwater.process.sql.settling import own

if TYPE_CHECKING:
    from headwater.process.sql.query import Queries

Known = Mapping[str, Callable[[], Rel]]
"""Common table expressions, each planned when it is first asked for."""


@dataclass
class Scope:
    queries: Queries
    build: Build
    select: exp.Select
    known: Known
    replaced: list[tuple[exp.Expr, str]] = field(default_factory=list)
    """Expressions that have become columns, with their SQL."""

    @property
    def view(self) -> str:
        return self.build.view

    def answers(self) -> list[exp.Expr]:
        """The parts that speak of what comes out: after WHERE and GROUP BY."""
        found = list(self.select.expressions)
        for name in ("having", "qualify", "order"):
            if self.select.args.get(name) is not None:
                found.append(self.select.args[name])
        return found

    def text(self, node: exp.Expr, *, as_written: bool = False) -> str:
        """The SQL of an expression over the columns of the relation as it is now; in its fastest form, or `as_written`
        for people to read."""

        def moved(part: exp.Expr) -> exp.Expr:
            for known, column in self.replaced:
                if part == known:
                    return exp.maybe_parse(column, dialect=DIALECT)
            if isinstance(part, exp.Column) and part.table:
                return exp.column(exp.to_identifier(f"{part.table}.{part.name}", quoted=True))
            if asks_the_calendar(part) and not as_written:
                return in_utc(part, self.text(part.this))
            if isinstance(part, Now):
                refuse(self.view, part, "now() here", do="Compare it with a time in WHERE, joined by AND")
            if isinstance(part, exp.Subquery | exp.Exists) or (isinstance(part, exp.In) and part.args.get("query")):
                refuse(self.view, part, "a subquery here", do="Write it as a join, or in WHERE joined by AND")
            return part

        return str(node.copy().transform(moved).sql(dialect=DIALECT))

    def filtered(self, rel: Rel, *conditions: exp.Expr) -> Rel:
        """Only the rows for which all of them hold; where they speak of now(), while they do."""
        parts = [part for condition in conditions for part in conjuncts(condition)]
        timed = [part for part in parts if speaks_of_now(part)]
        for part in parts:
            if not speaks_of_now(part):
                rel = kept_first(rel.where(self.text(part)), rel, part, self.text)
        return there_between(self, rel, timed) if timed else rel


def tables(node: exp.Expr) -> set[str]:
    return {column.table for column in node.find_all(exp.Column) if column.table}


def outer_tables(node: exp.Expr) -> set[str]:
    """Those that the queries inside of it do not bring along."""
    outside = {column.table for column in own(node) if isinstance(column, exp.Column) and column.table}
    names = {table.alias_or_name for table in node.find_all(exp.Table, exp.Subquery)}
    return outside | (tables(node) - names)


def has_query(node: exp.Expr) -> bool:
    return node.find(exp.Query) is not None


def own_tables(query: exp.Expr) -> set[str]:
    names = set()
    source = query.args.get("from_")
    for holder in [source, *(query.args.get("joins") or [])]:
        if holder is not None:
            names.add(holder.this.alias_or_name)
    return names

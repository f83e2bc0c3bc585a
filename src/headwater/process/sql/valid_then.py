"""What was valid then: `JOIN rates FOR SYSTEM_TIME AS OF orders.at AS r ON orders.country = r.country`.

Each row is joined with the version of the table's row that had begun last, by the table's own event time, when the row
happened. A version that becomes known later corrects what was joined without it. Written out it is an ASOF JOIN with
all rows that the table ever had.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from headwater.process.sql.parse import DIALECT, Source, refuse
from headwater.process.sql.settling import own

HISTORY = "history of "
"""Before a table's name: all rows that it ever had."""


def written_out(view: str, query: exp.Query, inputs: Mapping[str, Source]) -> None:
    """In place."""
    for table in list(query.find_all(exp.Table)):
        version = table.args.get("version")
        if version is None:
            continue
        join = table.parent
        source = inputs.get(table.name)
        if not isinstance(join, exp.Join) or source is None:
            refuse(view, table, "FOR SYSTEM_TIME outside of a join with a table", do="Join a table of this app with it")
        if source.time is None:
            refuse(
                view, table, f"{table.name!r} does not say since when its rows are valid", do="Declare it with time="
            )
        alias = table.alias_or_name
        known = exp.GTE(this=version.expression.copy(), expression=exp.column(source.time, alias))
        join.set("on", exp.and_(join.args["on"], known) if join.args.get("on") else known)
        join.set("method", "ASOF")
        past = exp.Table(this=exp.to_identifier(HISTORY + table.name, quoted=True))
        past.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
        table.replace(past)


def with_ties_broken(query: exp.Query) -> exp.Query:
    """Of right rows with the same key and time the first by all their columns: as the operator takes it."""
    settled = query.copy()
    for select in list(settled.find_all(exp.Select)):
        for join in select.args.get("joins") or []:
            if join.method.upper() == "ASOF":
                _break_ties(select, join)
    return settled


def _break_ties(select: exp.Select, join: exp.Join) -> None:
    alias = join.this.alias_or_name
    used = {node.name: node for node in own(select) if isinstance(node, exp.Column) and node.table == alias}
    tied = {
        node.sql(DIALECT): node.copy()
        for part in join.args["on"].flatten()
        for node in part.find_all(exp.Column)
        if node.table == alias
    }
    order = [exp.Ordered(this=used[name].copy(), nulls_first=False) for name in sorted(used)]
    first = exp.Window(
        this=exp.RowNumber(), partition_by=list(tied.values()), order=exp.Order(expressions=order), over="OVER"
    )
    rows = exp.select(*(exp.alias_(exp.column(name, alias), name) for name in sorted(used))).from_(join.this.copy())
    rows.set("qualify", exp.Qualify(this=exp.EQ(this=first, expression=exp.Literal.number(1))))
    join.set("this", exp.alias_(rows.subquery(), alias, table=True))

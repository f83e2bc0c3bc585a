"""Columns that nobody asks for are left out: of what joins answer and keep, and of what is sent to them.

While a plan is built, a join answers all columns of both sides, for nobody knows yet what will be asked of them. Once
it is built, one walk from its end to its beginning does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import sqlglot
from sqlglot import exp

from headwater.process import duck
from headwater.process.keyed.join import LEFT, Join
from headwater.process.keyed.operator import Operator
from headwater.process.plan import CHANGES, Send
from headwater.process.sql.nested import columns_in
from headwater.process.sql.parse import DIALECT
from headwater.process.sql.partial import partial_of
from headwater.process.sql.plain import plain_columns
from headwater.process.sql.shown import shown_by
from headwater.records import WEIGHT

_ROWS_OF_ITS_OWN = ("distinct", "group", "having", "qualify", "order", "limit", "offset", "joins", "with_", "with")
"""Of a query with one of these it is not looked into what its columns are for."""


class _Origin(Protocol):
    sends: list[Send]


class _Node(_Origin, Protocol):
    operator: Operator
    number: int
    schema: pa.Schema


def prune(topics: Sequence[_Origin], nodes: Sequence[_Node]) -> None:
    """`nodes` are in an order in which each comes after those that it hears of."""
    for node in reversed(nodes):
        if isinstance(node.operator, Join):
            _prune_join(node, node.operator, [*topics, *nodes])


def _prune_join(node: _Node, join: Join, origins: Iterable[_Origin]) -> None:
    wanted: set[str] = set()
    for send in node.sends:
        used = columns_used(send.sql) if send.sql is not None else None
        if used is None:
            return
        wanted |= used
    output = tuple(name for name in join.output if name.lower() in wanted) or join.output[:1]
    asked = {*output, *join.left_key, *join.right_key, WEIGHT}
    asked |= {until[0] for until in (join.left_until, join.right_until) if until is not None}
    sending = [(origin, place, send) for origin in origins for place, send in enumerate(origin.sends)]
    arriving = [each for each in sending if each[2].node == node.number]
    asked |= {name for _, _, send in arriving for name in send.key}

    def pruned(side: pa.Schema) -> pa.Schema:
        spoken_of = {name for name in side.names if join.on is not None and duck.quoted(name) in join.on}
        kept = [field for field in side if field.name in asked | spoken_of]
        return pa.schema(kept if len(kept) > 1 else [side.field(0), *kept])  # of rows that only count, one column

    pruned_join = replace(join, left=pruned(join.left), right=pruned(join.right), output=output)
    for origin, place, send in arriving:
        assert send.sql is not None
        side = pruned_join.left if send.port == LEFT else pruned_join.right
        sql = narrowed(send.sql, side.names)
        origin.sends[place] = replace(send, sql=sql, plain=plain_columns(sql), partial=partial_of(sql))
    node.operator = pruned_join
    node.schema = pa.schema([field for field in node.schema if field.name in {*output, WEIGHT}])
    for place, send in enumerate(node.sends):
        if send.sql is not None:
            sql = narrowed(send.sql, None)
            shown = shown_by(sql) if send.shown is not None else None
            node.sends[place] = replace(send, sql=sql, plain=plain_columns(sql), partial=partial_of(sql), shown=shown)


def columns_used(sql: str) -> set[str] | None:
    """The columns of `changes` that a linear query depends on, in lower case; None where that is not known."""
    query = sqlglot.parse_one(sql, dialect=DIALECT)
    return _narrow(query, None)


def narrowed(sql: str, columns: Sequence[str] | None) -> str:
    """The same query with these columns alone, or all, that asks for nothing in vain on the way."""
    query = sqlglot.parse_one(sql, dialect=DIALECT)
    before = query.sql(DIALECT)
    _narrow(query, None if columns is None else {name.lower() for name in columns})
    return query.sql(DIALECT) if query.sql(DIALECT) != before else sql


def _narrow(query: exp.Expr, wanted: set[str] | None) -> set[str] | None:
    """Takes out of the query and those inside of it what nobody asks for; answers what is asked of `changes`."""
    if not isinstance(query, exp.Select):
        return None
    source = query.args["from_" if "from_" in query.args else "from"].this
    if wanted is not None and not any(query.args.get(each) for each in _ROWS_OF_ITS_OWN):
        items = [each for each in query.expressions if _is_asked(each, wanted)]
        query.set("expressions", items or query.expressions[:1])
    if any(query.args.get(each) for each in ("joins", "with_", "with")):
        return None
    used: set[str] | None = set()
    for name, part in query.args.items():
        for each in part if isinstance(part, list) else [part]:
            if name in ("from", "from_") or not isinstance(each, exp.Expr):
                continue
            if isinstance(each, exp.Star) and wanted is not None and not any(each.args.values()):
                used = used | wanted if used is not None else None
            elif each.find(exp.Star, exp.Columns) and not _counts_rows(each):
                used = None
            elif used is not None:
                used |= columns_in(each)
    if isinstance(source, exp.Subquery) and not any(source.args.get(each) for each in ("sample", "pivots")):
        return _narrow(source.this, used)
    if used is None or not (isinstance(source, exp.Table) and source.name == CHANGES):
        return None
    return used


def _is_asked(item: exp.Expr, wanted: set[str]) -> bool:
    """Whether it must stay: for its column, or because rows come and go with it."""
    if isinstance(item, exp.Star) or item.alias_or_name.lower() in wanted:
        return True
    return item.find(exp.AggFunc, exp.Unnest, exp.Explode, exp.Window, exp.Subquery, exp.Anonymous) is not None


def _counts_rows(item: exp.Expr) -> bool:
    return all(isinstance(star.parent, exp.Count) for star in item.find_all(exp.Star)) and not item.find(exp.Columns)

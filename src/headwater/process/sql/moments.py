"""`now()` compared with a time in WHERE or HAVING: from when until when, by the clock, a row is there.

The comparison is solved for now(): `at > now() - INTERVAL '5 minutes'` says now() < at + 5 minutes. Elsewhere now() is
refused. In the oracle it is the last tick.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from sqlglot import exp

from headwater.process import duck
from headwater.process.keyed.expire import FIRST, FROM, LAST, UNTIL, Expire
from headwater.process.sql.apart import FLIPPED, comparisons
from headwater.process.sql.intervals import micros, shifted
from headwater.process.sql.parse import DIALECT, LAST_TICK, conjuncts, function_name, refuse
from headwater.process.sql.relation import Part, Rel
from headwater.process.ticks import AT, TICKS
from headwater.records import WEIGHT

if TYPE_CHECKING:
    from headwater.process.sql.scope import Scope

_NAMES = ("now", "current_timestamp", "get_current_timestamp", "transaction_timestamp")


class Now(exp.Expression, exp.Func):
    """The last tick."""

    arg_types: ClassVar[dict[str, bool]] = {}


@dataclass(frozen=True)
class Moment:
    """now() `sign` time + by."""

    sign: type[exp.Expr]
    time: exp.Expr
    by: int


def written_out(view: str, query: exp.Query) -> None:
    """In place."""
    for select in query.find_all(exp.Select):
        for clause in ("where", "having"):
            for part in conjuncts(select.args[clause].this) if select.args.get(clause) else []:
                calls = [node for node in part.find_all(exp.Func) if function_name(node) in _NAMES]
                if not calls or part.find(exp.Query) is not None:
                    continue
                for call in calls:
                    last = Now()
                    last.meta.update({**call.meta, LAST_TICK: True})
                    call.replace(last)
                if not list(moments(part)):
                    refuse(view, part, "now() in this condition", do="Write time > now() - INTERVAL '5 minutes'")


def speaks_of_now(part: exp.Expr) -> bool:
    return part.find(Now) is not None


def by_ticks(query: exp.Query) -> exp.Query:
    """The query as DuckDB answers it, with the ticks as a table."""
    last = f'(SELECT max({AT}) FROM "{TICKS.name}")'
    answered: exp.Query = query.transform(
        lambda node: exp.maybe_parse(last, dialect=DIALECT) if isinstance(node, Now) else node
    )
    return answered


def moments(part: exp.Expr) -> Iterator[Moment]:
    """What the condition says of now(); nothing if it cannot be solved for it."""
    solved = [_solved(*each) for each in comparisons([part.unnest()])]
    if all(each is not None for each in solved):
        yield from (each for each in solved if each is not None)


def _solved(left: exp.Expr, sign: type[exp.Expr], right: exp.Expr) -> Moment | None:
    if speaks_of_now(right) and not speaks_of_now(left):
        left, sign, right = right, FLIPPED.get(sign, sign), left
    if speaks_of_now(right):
        return None
    left = left.unnest()
    if isinstance(left, exp.Sub) and not speaks_of_now(left.right):  # now() - time < INTERVAL ...
        of, span = shifted(left.left, Now), micros(right)
        if of is not None and span is not None and left.right.find(exp.Column) is not None:
            return Moment(sign, left.right, span - of[1])
    of = shifted(left, Now)
    return Moment(sign, right, -of[1]) if of is not None else None


def there_between(scope: Scope, rel: Rel, parts: list[exp.Expr]) -> Rel:
    """The rows, each while its conditions hold by the clock."""
    begins, ends = [str(FIRST)], [str(LAST)]
    for moment in (each for part in parts for each in moments(part)):
        at = f"(epoch_us(({scope.text(moment.time)})::TIMESTAMPTZ) + ({moment.by}))"
        if moment.sign in (exp.GT, exp.GTE, exp.EQ):
            begins.append(f"{at} + 1" if moment.sign is exp.GT else at)
        if moment.sign in (exp.LT, exp.LTE, exp.EQ):
            ends.append(at if moment.sign is exp.LT else f"{at} + 1")
    build, columns = scope.build, [(name, duck.quoted(name)) for name in rel.columns]
    known = " AND ".join(f"({text}) IS NOT NULL" for text in [*begins[1:], *ends[1:]])
    rows = rel.where(known).project([*columns, (FROM, _of("greatest", begins)), (UNTIL, _of("least", ends))])
    rows = build.made(rows.where(f"{FROM} < {UNTIL}"))
    schema = build.schema(rows).append(pa.field(WEIGHT, pa.int64()))
    ticks = build.scan(TICKS.name, (AT,))
    key = rows.spread if rows.spread is not None else rel.columns
    sampled = [schema, build.schema(ticks)]
    node = build.node(Expire(schema), [(rows, key), (ticks, ())], sampled, to_all=[False, True])
    shown = f"SELECT {duck.columns(rel.columns)}, {WEIGHT} FROM changes"
    return replace(
        rows,
        columns=rel.columns,
        parts=(Part(node, shown),),
        append_only=False,
        spread=key,
        bounds={},
        past=frozenset(),
        sessions=frozenset(),
        ranks={},
    )


def _of(function: str, texts: list[str]) -> str:
    return f"{function}({', '.join(texts)})::BIGINT"

"""Groups by hopping windows, added up by panes before they are by windows.

A pane is as long as the slide. Where the size is a multiple of that, a window is made of whole panes: so not each row
need be put into all of its windows, but only what rows of a pane come to, and that is far less.

A rule over the text of a grouping query, whose rows are those that HOP is written out as (see `windows.py`):

    SELECT k, w(s) AS w, count(*) AS n FROM (SELECT *, UNNEST(RANGE(p - reach, p + 1, slide)) AS s ...) GROUP BY k, w

becomes, with the same rows,

    SELECT k, w, sum(n)::BIGINT AS n
    FROM (SELECT k, w(s) AS w, n
          FROM (SELECT k, n, UNNEST(RANGE(p - reach, p + 1, slide)) AS s
                FROM (SELECT k, p, count(*) AS n FROM (SELECT *, p ... WHERE time IS NOT NULL) GROUP BY k, p)))
    GROUP BY k, w

It stays as it is where a row's windows are used for more than to group by: in a condition, in what is counted, together
with columns of the row. A size that is no multiple of the slide asks of each row whether the window reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from headwater.process import duck
from headwater.process.sql.nested import column, columns_in, grouping, inner, parts_of
from headwater.process.sql.parse import DIALECT, function_name
from headwater.process.sql.windows import floor_sql

PANE, WINDOW = "_pane", "_window"
"""Where a row's pane begins, and where one of its windows does (µs)."""

_OF_SEVERAL_ROWS = (exp.AggFunc, exp.Window, exp.Query, exp.UDTF, exp.Star)


@dataclass(frozen=True)
class _Hop:
    windows: exp.Expr
    """`UNNEST(RANGE(pane - reach, pane + 1, slide)) AS start`: a row for each of its windows."""
    pane: exp.Expr
    time: exp.Expr
    reach: int
    slide: int


def by_panes(sql: str) -> str:
    """The query that has the same rows by way of panes; the same query where there is none, or nothing to win."""
    if "UNNEST(RANGE(" not in sql or any(duck.quoted(name) in sql for name in (PANE, WINDOW)):
        return sql
    query = grouping(sql)
    if query is None:
        return sql
    found = _levels(query)
    starts = _with_panes(*found) if found is not None else None
    made = _added_up(query, found[1], starts) if found is not None and starts is not None else None
    return made.sql(DIALECT) if made is not None else sql


def _levels(query: exp.Select) -> tuple[list[exp.Select], _Hop] | None:
    """The queries inside of this one, down to the one that puts rows into windows; each speaks of one row at a time."""
    levels: list[exp.Select] = []
    hop, level = None, query
    while hop is None:
        below = inner(level)
        if below is None:
            return None
        level = below
        levels.append(level)
        hop = next((each for each in map(_hop, level.expressions) if each is not None), None)
    return levels, hop


def _hop(item: exp.Expr) -> _Hop | None:
    spread = item.unalias()
    starts = spread.this if isinstance(spread, exp.Explode) else None
    if not isinstance(starts, exp.GenerateSeries) or not starts.args.get("is_end_exclusive"):
        return None
    first, end, slide = starts.args["start"], starts.args["end"], _number(starts.args.get("step"))
    reach = _number(first.expression) if isinstance(first, exp.Sub) else None
    after = _number(end.expression) if isinstance(end, exp.Add) else None
    if not slide or not reach or reach % slide or after != 1 or first.this != end.this:
        return None
    pane = first.this.unnest()
    time = next((each.expressions[0] for each in pane.find_all(exp.Func) if function_name(each) == "epoch_us"), None)
    if time is None or pane != exp.maybe_parse(floor_sql(time.sql(DIALECT), slide), dialect=DIALECT):
        return None
    return _Hop(item, pane, time, reach, slide)


def _with_panes(levels: list[exp.Select], hop: _Hop) -> dict[str, exp.Expr] | None:
    """In place, a row's pane in the place of its windows. Answers which columns there were that hang on the window
    alone, each by where it begins; None if something hangs on the window and the row."""
    known: dict[str, exp.Expr] = {}
    for level in reversed(levels):
        kept: list[exp.Expr] = []
        above: dict[str, exp.Expr] = {}
        for item in level.expressions:
            if item is hop.windows:
                kept.append(exp.alias_(hop.pane.copy(), PANE, quoted=True))
                above[item.alias.lower()] = column(WINDOW)
            elif isinstance(item, exp.Star) and not any(item.args.values()):
                kept.append(item)
                above |= known
            elif not columns_in(item) & known.keys():
                kept.append(item)
            elif columns_in(item) <= known.keys() and not item.find(*_OF_SEVERAL_ROWS):
                above[item.alias_or_name.lower()] = _in_terms_of(known, item.unalias())
            else:
                return None
        if level is levels[-1]:
            level.where(_there(hop.time), copy=False)
        elif not any(isinstance(item, exp.Star) for item in kept):
            kept.append(column(PANE))
        asked = [*kept, *([level.args["where"]] if level.args.get("where") else [])]
        if any(columns_in(each) & (known.keys() | above.keys()) for each in asked):
            return None
        level.set("expressions", kept)
        known = above
    return known


def _added_up(query: exp.Select, hop: _Hop, starts: Mapping[str, exp.Expr]) -> exp.Select | None:
    """The groups by pane, each put into its windows, and grouped again."""
    group, where = query.args["group"], query.args.get("where")
    keys = [each for each in query.expressions if isinstance(each, exp.Column)]
    numbers = [each for each in query.expressions if not isinstance(each, exp.Column)]
    merged = [each for each in map(_merged, numbers) if each is not None]
    if group.expressions != keys or parts_of(group) != {"expressions"} or len(merged) != len(numbers):
        return None
    if any(columns_in(each) & starts.keys() for each in [*numbers, *([where] if where else [])]):
        return None
    rows = [key for key in keys if key.name.lower() not in starts]
    names = [column(each.alias) for each in numbers]
    pane = column(PANE)
    windows = f"UNNEST(RANGE({PANE} - {hop.reach}, {PANE} + 1, {hop.slide}))"
    of_panes = exp.select(*rows, pane, *numbers).from_(query.args["from_"].this).group_by(*rows, pane)
    of_panes = of_panes.where(where.this) if where else of_panes
    of_windows = exp.select(*rows, *names, exp.alias_(exp.maybe_parse(windows, dialect=DIALECT), WINDOW, quoted=True))
    of_windows = of_windows.from_(of_panes.subquery())
    shown = [
        exp.alias_(starts[key.name.lower()], key.name, quoted=True) if key.name.lower() in starts else key
        for key in keys
    ]
    told = exp.select(*shown, *names).from_(of_windows.subquery())
    return exp.select(*keys, *merged).from_(told.subquery()).group_by(*keys)


def _merged(item: exp.Expr) -> exp.Expr | None:
    """What makes of a number by pane the same number by window; None if that is not known of it."""
    whole = item.unalias()
    node, kind = (whole.this, whole.to) if isinstance(whole, exp.Cast) else (whole, None)
    if isinstance(node, exp.Coalesce) and [each.sql() for each in node.expressions] == ["0"]:
        node = node.this
    node = node.this if isinstance(node, exp.Filter) else node
    name = column(item.alias)
    if isinstance(node, exp.Min | exp.Max) and kind is None and not node.expressions:
        return exp.alias_(type(node)(this=name), item.alias, quoted=True)
    counts = isinstance(node, exp.Count) and isinstance(node.this, exp.Star)
    if not counts and not (isinstance(node, exp.Sum) and kind is not None and not isinstance(node.this, exp.Distinct)):
        return None
    kind = kind or exp.DataType.build("BIGINT")
    return exp.alias_(exp.Cast(this=exp.Sum(this=name), to=kind.copy()), item.alias, quoted=True)


def _in_terms_of(known: Mapping[str, exp.Expr], node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Column):
        return known[node.name.lower()].copy()

    def told(each: exp.Expr) -> exp.Expr:
        if not isinstance(each, exp.Column):
            return each
        value = known[each.name.lower()].copy()
        return value if isinstance(value, exp.Column) else exp.paren(value)

    return node.copy().transform(told)


def _there(node: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=node.copy(), expression=exp.null()))


def _number(node: exp.Expr | None) -> int | None:
    return int(node.name) if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() else None

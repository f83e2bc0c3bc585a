"""Windows in time, written out in plain SQL.

TUMBLE(topic, time, size)               each record in the one window that holds it
HOP(topic, time, slide, size)           each record in every window that holds it
SESSION(topic, time, key[, key], gap)   a key's records that are never further apart than the gap

each in FROM, adding `window_start` and `window_end`; or as tumble(time, size), hop(time, slide, size) and
session(time, gap) in GROUP BY, where they stand for the window's start. Windows count from 1970-01-01 UTC.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headwater.process.sql.intervals import micros
from headwater.process.sql.parse import DIALECT, function_name, refuse

START, END = "window_start", "window_end"
BOUND = "bound"
SESSION = "session"
SESSIONS = "sessions"
_FUNCTIONS = ("tumble", "hop", "session")


@dataclass(frozen=True)
class Written:
    """What was written out as windows of SQL: sessions by this time, of these keys, with this gap (µs)."""

    time: str
    keys: tuple[str, ...]
    gap: int


def written_out(view: str, query: exp.Query) -> None:
    """In place."""
    for select in list(query.find_all(exp.Select)):
        _grouped(view, select)
    for table in list(query.find_all(exp.Table)):
        if isinstance(table.this, exp.Func) and function_name(table.this) in _FUNCTIONS:
            _in_from(view, table)


def _in_from(view: str, table: exp.Table) -> None:
    call = table.this
    kind = function_name(call)
    arguments = list(call.expressions)
    least = {"tumble": 3, "hop": 4, "session": 4}[kind]
    if len(arguments) < least or (kind != "session" and len(arguments) > least):
        usage = {
            "tumble": "TUMBLE(topic, time, INTERVAL '1 minute')",
            "hop": "HOP(topic, time, INTERVAL '10 seconds', INTERVAL '1 minute')",
            "session": "SESSION(topic, time, key, INTERVAL '10 minutes')",
        }[kind]
        refuse(view, call, f"{kind.upper()} with {len(arguments)} arguments", do=f"Write {usage}")
    source, time = arguments[0], arguments[1]
    if isinstance(source, exp.Column):
        name = source.name
        inner: exp.Expr = exp.to_table(name)
    elif isinstance(source, exp.Subquery):
        name = source.alias or "windowed"
        inner = exp.alias_(source.copy(), name, table=True)
    else:
        refuse(view, source, f"{kind.upper()} of something else than a topic", do="Name a topic, or a (SELECT ...)")
    if kind == "tumble":
        size = _micros(view, arguments[2])
        start = _floor(time, size)
        rows = _with_columns(inner, {START: _bound(start, time, size), END: _bound(_end(start, size), time, 0)})
    elif kind == "hop":
        slide, size = _micros(view, arguments[2]), _micros(view, arguments[3])
        rows = _hop(inner, time, slide, size)
    else:
        rows = _session(inner, time, arguments[2:-1], _micros(view, arguments[-1]))
    table.replace(exp.alias_(rows.subquery(copy=False), table.alias or name, table=True))


def _with_columns(source: exp.Expr, columns: dict[str, exp.Expr]) -> exp.Select:
    return exp.select("*", *(exp.alias_(value, name) for name, value in columns.items())).from_(source)


def _hop(source: exp.Expr, time: exp.Expr, slide: int, size: int) -> exp.Select:
    last = f"({floor_sql(_sql(time), slide)})"
    starts = f"unnest(range({last} - {(-(-size // slide) - 1) * slide}, {last} + 1, {slide}))"
    inner = exp.select("*", exp.alias_(_parsed(starts), "_start")).from_(source)
    within = _parsed(f"epoch_us({_sql(time)}) < _start + {size}")
    chosen = exp.select(
        exp.Star(except_=[exp.to_identifier("_start")]),
        exp.alias_(_bound(_parsed("make_timestamptz(_start)"), time, size), START),
        exp.alias_(_bound(_parsed(f"make_timestamptz(_start + {size})"), time, 0), END),
    ).from_(inner.subquery("_hopping"))
    return chosen.where(within) if size % slide else chosen


def _session(source: exp.Expr, time: exp.Expr, key: list[exp.Expr], gap: int) -> exp.Select:
    """A record begins a session if the one before it is too far away; counting beginnings numbers them."""
    keys, at = ", ".join(_sql(each) for each in key), _sql(time)
    before = f"lag(epoch_us({at})) OVER (PARTITION BY {keys} ORDER BY {at})"
    begins = f"CASE WHEN epoch_us({at}) - {before} <= {gap} THEN 0 ELSE 1 END"
    number = f"sum(_begins) OVER (PARTITION BY {keys} ORDER BY {at} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    whole = f"OVER (PARTITION BY {keys}, _session)"
    one = exp.select("*", exp.alias_(_of_session(begins, gap), "_begins")).from_(source)
    two = exp.select("*", exp.alias_(_of_session(number, gap), "_session")).from_(one.subquery("_sessions1"))
    hidden = [exp.to_identifier("_begins"), exp.to_identifier("_session")]
    written = exp.select(
        exp.Star(except_=hidden),
        exp.alias_(_of_session(f"min({at}) {whole}", gap), START),
        exp.alias_(_of_session(f"make_timestamptz(epoch_us(max({at}) {whole}) + {gap})", gap), END),
    ).from_(two.subquery("_sessions2"))
    written.meta[SESSIONS] = Written(time.name.lower(), tuple(each.name.lower() for each in key), gap)
    return written


def _of_session(text: str, gap: int) -> exp.Expr:
    """Remember that it is about sessions: rows of other sessions do not matter to it."""
    node = _parsed(text)
    node.meta[SESSION] = gap
    return node


# --- as functions of GROUP BY ---


def _grouped(view: str, select: exp.Select) -> None:
    calls = [node for node in _own(select) if isinstance(node, exp.Func) and _base(node) in _FUNCTIONS]
    calls = [node for node in calls if not isinstance(node.parent, exp.Table)]
    for call in calls:
        if _base(call) == "tumble":
            size = _micros(view, call.expressions[-1])
            time, start = call.expressions[0], _floor(call.expressions[0], size)
            ends = function_name(call).endswith("_end")
            call.replace(_bound(_end(start, size), time, 0) if ends else _bound(start, time, size))
    others = [call for call in calls if _base(call) != "tumble"]
    if not others:
        return
    source = select.args.get("from_")
    group = select.args.get("group")
    if source is None or group is None or select.args.get("joins") or not isinstance(source.this, exp.Table):
        refuse(
            view,
            others[0],
            f"{function_name(others[0])}() outside of a GROUP BY over one topic",
            do=f"Write FROM {_base(others[0]).upper()}(topic, time, ...) and group by window_start",
        )
    first = others[0]
    spans = list(first.expressions)
    time = spans.pop(0)
    keys = [each for each in group.expressions if isinstance(each, exp.Column)]
    if _base(first) == "session":
        if not keys:
            refuse(view, first, "a session without a key", do="Group by the column whose sessions are meant, too")
        spans = [*(each.copy() for each in keys), *spans]
    table = source.this
    windowed = exp.Table(
        this=exp.Anonymous(
            this=_base(first).upper(), expressions=[exp.column(table.name), _bare(time), *map(_bare, spans)]
        ),
        alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name)),
    )
    table.replace(windowed)
    for call in others:
        call.replace(exp.column(END if function_name(call).endswith("_end") else START))


def _own(select: exp.Select) -> list[exp.Expr]:
    """The nodes of a SELECT that are not those of a query inside of it."""
    return list(select.walk(prune=lambda node: isinstance(node, exp.Query) and node is not select))


def _base(call: exp.Expr) -> str:
    return function_name(call).removesuffix("_start").removesuffix("_end")


def _bare(node: exp.Expr) -> exp.Expr:
    return exp.column(node.name) if isinstance(node, exp.Column) else node.copy()


# --- arithmetic ---


def _floor(time: exp.Expr, size: int) -> exp.Expr:
    return _parsed(f"make_timestamptz({floor_sql(_sql(time), size)})")


def floor_sql(time: str, size: int) -> str:
    """Where the one of the spans of this size that holds the time begins, in µs."""
    return f"epoch_us({time}) - ((epoch_us({time}) % {size}) + {size}) % {size}"


def _bound(node: exp.Expr, time: exp.Expr, span: int) -> exp.Expr:
    """Remember that only records with a time less than `span` after this value make it: so it can be past."""
    node = node.copy()
    node.meta[BOUND] = (time.name, span)
    return node


def _end(start: exp.Expr, size: int) -> exp.Expr:
    return _parsed(f"make_timestamptz(epoch_us({_sql(start)}) + {size})")


def _micros(view: str, span: exp.Expr) -> int:
    found = micros(span)
    if found is None or found <= 0:
        told = f"{_sql(span)} is no span of time with a fixed length above zero"
        refuse(view, span, told, do="Write INTERVAL '10 seconds'; count in days, hours, minutes or seconds")
    return found


def _parsed(text: str) -> exp.Expr:
    parsed: exp.Expr = exp.maybe_parse(text, dialect=DIALECT)
    return parsed


def _sql(node: exp.Expr) -> str:
    return node.sql(dialect=DIALECT)

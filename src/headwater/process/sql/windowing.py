"""Window functions: what can be computed from the rows of one partition alone, together in one operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from headwater.process import duck
from headwater.process.keyed.forgetting import Forget
from headwater.process.keyed.top import Order
from headwater.process.sql.bounds import forgotten_sessions
from headwater.process.sql.ordering import ordering
from headwater.process.sql.parse import function_name
from headwater.process.sql.relation import Lazy, Part, Rel, absorbed
from headwater.process.sql.scope import Scope
from headwater.process.sql.settling import BY_PEERS, own
from headwater.process.sql.windows import SESSION


def windowed(scope: Scope, rel: Rel) -> Rel:
    windows: dict[str, exp.Window] = {}
    for part in scope.answers():
        for node in own(part):
            if isinstance(node, exp.Window):
                windows.setdefault(scope.text(node), node)
    if not windows:
        return rel
    partitions = [[scope.text(each) for each in node.args.get("partition_by") or []] for node in windows.values()]
    common = [text for text in partitions[0] if all(text in other for other in partitions[1:])]
    named = []
    columns = [(name, duck.quoted(name)) for name in rel.columns]
    for text in common:
        plain = text.strip('"')
        if duck.quoted(plain) == text and plain in rel.columns:
            named.append(plain)
        else:
            named.append(scope.queries.fresh("p"))
            columns.append((named[-1], text))
    rows = rel.project(columns)
    ranks = {scope.queries.fresh("w"): (text, node) for text, node in windows.items()}
    key = tuple(named)
    gap = next(
        (item.unalias().meta[SESSION] for item in scope.select.expressions if SESSION in item.unalias().meta), None
    )
    lazy = rows.lazy
    if lazy is not None and rows.spread is not None and set(rows.spread) <= set(key):
        inner, inputs, spread = absorbed(lazy, rows.parts[0].sql), lazy.inputs, rows.spread
        keep, always = lazy.keep, lazy.always
        forget = lazy.forget if gap is not None or rows.sessions & set(key) else None
    else:
        inner, inputs, spread, keep, always = "SELECT * FROM in0", ((rows, key),), key, None, False
        forget = _forgotten(scope, rows, key, next(iter(windows.values())), gap) if gap is not None else None
    shown = ", ".join(f"{text} AS {duck.quoted(name)}" for name, (text, _) in ranks.items())
    made = Lazy(
        inputs,
        f"SELECT *, {shown} FROM ({inner})",
        keep,
        always,
        rank_over=_rank_over(rows, ranks) if inner == "SELECT * FROM in0" else None,
        forget=forget,
    )
    if made.rank_over is not None:
        made = replace(made, order=_row_order(scope, next(iter(windows.values())), rows.columns))
    scope.replaced = [*((node.copy(), duck.quoted(name)) for name, (_, node) in ranks.items()), *scope.replaced]
    ranked = {
        name: name
        for name, (_, node) in ranks.items()
        if function_name(node.this) in ("row_number", "rownumber", *BY_PEERS)
    }
    return Rel(
        (*rows.columns, *ranks),
        (Part(made, "FROM changes"),),
        False,
        spread=spread,
        unique=rows.unique,
        ranks=ranked,
        bounds={name: rows.bounds[name] for name in key if name in rows.bounds},
        sessions=rows.sessions,
    )


def _forgotten(scope: Scope, rows: Rel, key: tuple[str, ...], window: exp.Window, gap: int) -> Forget | None:
    """Of sessions over an event time that is bounded itself."""
    time = scope.text(window.args["order"].expressions[0].this)
    if scope.build.retain is None or rows.bounds.get(time.strip('"')) != 0:
        return None
    return forgotten_sessions(rows.columns, key, time, gap, scope.build.retain)


def _row_order(scope: Scope, window: exp.Window, columns: Sequence[str]) -> Order | None:
    """By what rows are numbered; None for ranks that several rows share."""
    order = window.args.get("order")
    if function_name(window.this) not in ("row_number", "rownumber") or order is None:
        return None
    texts = [f"{scope.text(each.this)} {ordering(each)}" for each in order.expressions]
    return tuple((text, tuple(name for name in columns if duck.quoted(name) in text)) for text in texts)


def _rank_over(rows: Rel, ranks: Mapping[str, tuple[str, exp.Expr]]) -> str | None:
    """Only if there is nothing but one rank: another window might need the rows that it leaves out."""
    if not rows.append_only or len(ranks) != 1:
        return None
    ((name, (text, node)),) = ranks.items()
    if function_name(node.this) not in ("row_number", "rownumber", "rank", "dense_rank", "rankdense"):
        return None
    return f"SELECT *, {text} AS {name} FROM in0"

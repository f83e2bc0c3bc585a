"""Which columns say when a row is past: windows over an event time that is bounded itself, and what may be forgotten
of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from headwater.process import duck
from headwater.process.keyed.forgetting import NOW, Forget
from headwater.process.sql.relation import Rel
from headwater.process.sql.windows import BOUND, END, SESSION, START


def bounded(rel: Rel, made: Rel, items: Mapping[str, exp.Expr]) -> Rel:
    """With what is known of times: the start and end of windows over a time that is bounded itself."""
    found = dict(made.bounds)
    sessions = set(made.sessions)
    forgets = rel.lazy is not None and rel.lazy.forget is not None
    for name, item in items.items():
        if forgets and SESSION in item.unalias().meta and name in (START, END):
            sessions.add(name)
            found |= {END: 0} if name == END else {}  # a record up to then may yet prolong it
        told = item.unalias().meta.get(BOUND)
        if told is not None and told[0].lower() in rel.past:
            found[name] = told[1]
    return replace(made, bounds=found, sessions=frozenset(sessions))


def forgotten_sessions(columns: Sequence[str], key: Sequence[str], time: str, gap: int, wait: int) -> Forget:
    """Sessions that nothing can prolong any more: the last record is further back than the gap and what may be late."""
    us = f"epoch_us({time})"
    by = f"PARTITION BY {', '.join(map(duck.quoted, key))}"
    begins = f"CASE WHEN {us} - lag({us}) OVER ({by} ORDER BY {time}) <= {gap} THEN 0 ELSE 1 END AS _begins"
    number = f"sum(_begins) OVER ({by} ORDER BY {time} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS _session"
    last = f"max({us}) OVER ({by}, _session)"
    keep = (
        f"SELECT {duck.columns(list(columns))} FROM (SELECT *, {number} FROM (SELECT *, {begins} FROM in0))"
        f" QUALIFY {time} IS NULL OR {last} + {gap + wait} >= (SELECT {NOW} FROM {NOW})"
    )
    return Forget((f"{us} + {gap + wait}",), (keep,))

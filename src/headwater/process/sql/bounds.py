"""Which columns say when a row is past: windows over an event time that is bounded itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from headwater.process.sql.relation import Rel
from headwater.process.sql.windows import BOUND


def bounded(rel: Rel, made: Rel, items: Mapping[str, exp.Expr]) -> Rel:
    """With what is known of times: the start and end of windows over a time that is bounded itself."""
    found = dict(made.bounds)
    for name, item in items.items():
        told = item.unalias().meta.get(BOUND)
        if told is not None and told[0].lower() in rel.past:
            found[name] = told[1]
    return replace(made, bounds=found)

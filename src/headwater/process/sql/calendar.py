"""Days and hours of a moment, without a calendar of time zones.

DuckDB runs in UTC here, where a moment has the day and hour of the plain timestamp of the same microseconds; but for a
TIMESTAMPTZ it asks ICU for them, which takes 3 to 12 times as long. What is infinite has no microseconds: that is asked
as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from headwater.process.sql.parse import DIALECT, Source, column_types

_PARTS = (exp.Hour, exp.Minute, exp.Month, exp.Day)
_ZONED = ("%z", "%Z")
"""In a format: of a plain timestamp nothing is told there."""


def typed(query: exp.Query, inputs: Mapping[str, Source]) -> exp.Query:
    """With the types of all that is known by those of the inputs' columns, in place."""
    annotate_types(query, schema=column_types(inputs), dialect=DIALECT)
    return query


def asks_the_calendar(node: exp.Expr) -> bool:
    if isinstance(node, exp.TimeToStr):
        form = node.args.get("format")
        if not isinstance(form, exp.Literal) or any(each in form.name for each in _ZONED):
            return False
    elif not isinstance(node, _PARTS):
        return False
    return bool(node.this.is_type(exp.DataType.Type.TIMESTAMPTZ))


def in_utc(node: exp.Expr, moment: str) -> exp.Expr:
    """The same, of a moment with this SQL."""

    def of(argument: str) -> str:
        asked = node.copy()
        asked.set("this", exp.maybe_parse(argument, dialect=DIALECT))
        return str(asked.sql(dialect=DIALECT))

    plain = of(f"make_timestamp(epoch_us({moment}))")
    return exp.maybe_parse(f"coalesce({plain}, {of(moment)})", dialect=DIALECT)

"""Groups by the text of a time, by the span of time that has this text before they are by the text.

`strftime(at, '%Y-%m-%d')` says the same of every moment of a day, and costs more to write than a row to count. So rows
are grouped by where their day begins, and the text is written once a group. Groups of several spans may have one text
(`'%H:%M'`): what they come to is partial, and added up later, as what several tasks have found is.

A rule over the text of a grouping query:

    SELECT k, d, count(*) AS n FROM (SELECT k, strftime(at, '%Y-%m-%d') AS d ...) GROUP BY k, d

becomes

    SELECT k, strftime(d, '%Y-%m-%d') AS d, n
    FROM (SELECT k, d, count(*) AS n FROM (SELECT k, begin(at) AS d ...) GROUP BY k, d)

It stays as it is where the text is used for more than to group by, and where a format tells seconds or less.
"""

from __future__ import annotations

import re

from sqlglot import exp

from headwater.process.sql.calendar import in_utc
from headwater.process.sql.nested import column, columns_in, grouping, inner, parts_of
from headwater.process.sql.parse import DIALECT

_SPANS = ("minute", "hour", "day")
_TELLS = {**dict.fromkeys("YyGmdjbBaAuwUWV%", "day"), **dict.fromkeys("HIp", "hour"), "M": "minute"}
"""The longest span in which a part of a format stays the same."""


def by_spans(sql: str) -> str:
    """The query whose rows come to the same when they are added up; the same query where there is nothing to win."""
    if "strftime(" not in sql.lower():
        return sql
    query = grouping(sql)
    if query is None:
        return sql
    group = query.args["group"]
    if parts_of(group) != {"expressions"} or not all(isinstance(key, exp.Column) for key in group.expressions):
        return sql
    written = {key.name: form for key in group.expressions if (form := _begun(query, key.name)) is not None}
    if not written:
        return sql
    shown = [
        exp.alias_(exp.TimeToStr(this=column(name), format=exp.Literal.string(written[name])), name, quoted=True)
        if (name := each.alias_or_name) in written
        else column(name)
        for each in query.expressions
    ]
    return str(exp.select(*shown).from_(query.subquery()).sql(DIALECT))


def _begun(query: exp.Select, name: str) -> str | None:
    """In place, where the span begins in the place of its text, which is a column of this name in the grouping query.
    Answers the format of the text; None if there is no such text, or somebody asks for it."""
    level, own = query, name
    while True:
        item = next((each for each in level.expressions if each.alias_or_name == own), None)
        text = item.unalias() if item is not None else None
        others = [each for each in level.expressions if each is not item]
        others += filter(None, [level.args.get("where")])
        names = {own.lower(), *([text.name.lower()] if isinstance(text, exp.Column) else [])}
        if any(names & columns_in(each) for each in others):
            return None
        if item is not None and isinstance(text, exp.Coalesce):
            told = _moment(text)
            if told is None:
                return None
            moment, form = told
            item.replace(exp.alias_(_begin(moment, form), own, quoted=True))
            return form
        if isinstance(text, exp.Column) and not text.table:  # with one, it is a field of that
            own = text.name
        elif item is not None or not any(isinstance(each, exp.Star) for each in level.expressions):
            return None
        below = inner(level)
        if below is None:
            return None
        level = below


def _moment(text: exp.Coalesce) -> tuple[str, str] | None:
    """Of which moment it is the text, and in which format, if it is one as `calendar.in_utc` writes it."""
    asked = text.expressions[0] if len(text.expressions) == 1 else None
    form = asked.args["format"] if isinstance(asked, exp.TimeToStr) else None
    if asked is None or not isinstance(form, exp.Literal) or _span(form.name) is None:
        return None
    return (asked.this.sql(DIALECT), form.name) if text == in_utc(asked, asked.this.sql(DIALECT)) else None


def _span(form: str) -> str | None:
    """Of which all moments have the same text; None if it is shorter than a minute, or not known."""
    parts = [_TELLS.get(part[-1]) for part in re.findall(r"%-?.", form)]
    return min(filter(None, parts), key=_SPANS.index) if parts and all(parts) else None


def _begin(moment: str, form: str) -> exp.Expr:
    """What is infinite begins where it is."""
    plain = f"coalesce(make_timestamp(epoch_us({moment})), ({moment})::TIMESTAMP)"
    return exp.maybe_parse(f"date_trunc('{_span(form)}', {plain})", dialect=DIALECT)

"""How far apart in event time two joined rows can be: so that a row which can match nothing more is not kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from headwater.process.sql.intervals import shifted
from headwater.process.sql.relation import Rel

FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}


@dataclass(frozen=True)
class Apart:
    """Of rows that match: right - before <= left <= right + after, in µs; None where there is no such bound."""

    left: str
    right: str
    before: int | None = None
    after: int | None = None

    @property
    def swapped(self) -> Apart:
        return Apart(self.right, self.left, self.after, self.before)

    def settled(self, left: int, right: int) -> tuple[int | None, int | None]:
        """How long after its time a row of either side may be matched or be taken away itself, given how long after
        their times rows of the sides may come and go."""
        return (
            None if self.before is None else max(self.before + right, left),
            None if self.after is None else max(self.after + left, right),
        )

    def decided_by_left(self, lefts: int | None, rights: int | None) -> int | None:
        """The same of left rows that say whether right ones are matched: until nothing matches those any more."""
        return None if lefts is None or rights is None or self.before is None else max(lefts, self.before + rights)

    def decided_by_right(self, lefts: int | None, rights: int | None) -> int | None:
        return None if lefts is None or rights is None or self.after is None else max(rights, self.after + lefts)


def apart(left: Rel, right: Rel, conditions: Iterable[exp.Expr]) -> Apart | None:
    """By those columns of event time for which the conditions say the most."""
    found: dict[tuple[str, str], Apart] = {}
    for one, sign, other in comparisons(conditions):
        a, b = shifted(one), shifted(other)
        if a is None or b is None:
            continue
        if _name(a[0]) in left.bounds and _name(b[0]) in right.bounds:
            _bound(found, _name(a[0]), _name(b[0]), sign, b[1] - a[1])
        elif _name(b[0]) in left.bounds and _name(a[0]) in right.bounds:
            _bound(found, _name(b[0]), _name(a[0]), FLIPPED.get(sign, sign), a[1] - b[1])
    return max(found.values(), key=lambda each: (each.before is not None) + (each.after is not None), default=None)


def _bound(found: dict[tuple[str, str], Apart], left: str, right: str, sign: type[exp.Expr], by: int) -> None:
    """left - right `sign` by."""
    known = found.get((left, right), Apart(left, right))
    if sign in (exp.LT, exp.LTE, exp.EQ):
        known = replace(known, after=by if known.after is None else min(known.after, by))
    if sign in (exp.GT, exp.GTE, exp.EQ):
        known = replace(known, before=-by if known.before is None else min(known.before, -by))
    found[left, right] = known


def comparisons(conditions: Iterable[exp.Expr]) -> Iterator[tuple[exp.Expr, type[exp.Expr], exp.Expr]]:
    for part in conditions:
        if isinstance(part, exp.Between):
            yield part.this, exp.GTE, part.args["low"]
            yield part.this, exp.LTE, part.args["high"]
        elif isinstance(part, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.EQ):
            yield part.left, type(part), part.right


def _name(column: exp.Expr) -> str:
    assert isinstance(column, exp.Column)
    return f"{column.table}.{column.name}"

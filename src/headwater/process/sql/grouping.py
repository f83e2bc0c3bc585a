"""GROUP BY: keys, grouping sets, and the aggregates that the answer asks for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from sqlglot import exp

from headwater.process import duck
from headwater.process.sql import aggregates
from headwater.process.sql.aggregates import Asked, is_aggregate
from headwater.process.sql.bounds import bounded
from headwater.process.sql.parse import DIALECT, function_name, refuse, sql_type
from headwater.process.sql.relation import Rel
from headwater.process.sql.scope import Scope
from headwater.process.sql.settling import own


def grouped(scope: Scope, rel: Rel) -> Rel:
    select = scope.select
    group = select.args.get("group")
    keys = list(group.expressions) if group is not None else []
    sets = _grouping_sets(scope, keys)
    calls = [
        node for part in scope.answers() for node in own(part) if function_name(node) in ("grouping", "grouping_id")
    ]
    asked = [each for each in asked_of(scope) if not any(each.node is call for call in calls)]
    used = {name for part in scope.answers() for name in _columns_in(part)} & set(rel.columns)
    texts = [scope.text(key) for key in keys]
    names = _named(scope, keys) if sets is None else [scope.queries.fresh("g") for _ in texts]
    spoken = " ".join(each.text for each in asked)
    other = [
        (name, duck.quoted(name))
        for name in rel.columns
        if name not in names and (name in used or duck.quoted(name) in spoken)
    ]
    if sets is None:
        rows = rel.project([*zip(names, texts, strict=True), *other])
        rows = bounded(rel, rows, dict(zip(names, keys, strict=True)))
        grouped, made = aggregates.group(scope.build, rows, tuple(names), asked)
    else:
        label = scope.queries.fresh("g")
        grouped = _in_sets(scope, rel, sets, label, list(zip(names, texts, strict=True)), other, asked)
        made = {each.name: duck.quoted(each.name) for each in asked}
        _grouping_calls(scope, keys, sets, label)
    stand_for_groups(scope, keys, names, asked, made)
    return grouped


def stand_for_groups(
    scope: Scope, keys: list[exp.Expr], names: list[str], asked: list[Asked], made: Mapping[str, str]
) -> None:
    """From here on the keys are columns of these names, and aggregates what they are made of."""
    scope.replaced = [
        *((key.copy(), duck.quoted(name)) for key, name in zip(keys, names, strict=True)),
        *(
            (
                each.node.parent.copy() if isinstance(each.node.parent, exp.Filter) else each.node.copy(),
                made[each.name],
            )
            for each in asked
        ),
        *scope.replaced,
    ]
    _check_grouped(scope, keys, asked)


def _in_sets(
    scope: Scope,
    rel: Rel,
    sets: list[set[int]],
    label: str,
    keys: list[tuple[str, str]],
    other: list[tuple[str, str]],
    asked: list[Asked],
) -> Rel:
    """The groups of every set, each with the set's number under `label`. A set without keys has a row over nothing."""
    kinds = scope.build.schema(rel.project(keys))
    nulls = {name: f"NULL::{sql_type(kinds.field(name).type)}" for name, _ in keys}

    def answered(rows: Rel, by: tuple[str, ...], shown: list[tuple[str, str]]) -> Rel:
        groups, made = aggregates.group(scope.build, rows, by, asked)
        return groups.project([*shown, *((each.name, made[each.name]) for each in asked)])

    found, copies = [], []
    for number, chosen in enumerate(sets):
        shown = [(name, text if place in chosen else nulls[name]) for place, (name, text) in enumerate(keys)]
        if chosen:
            copies.append(rel.project([(label, f"{number}::INTEGER"), *shown, *other]))
        else:
            found.append(answered(rel.project(other), (), [(label, f"{number}::INTEGER"), *nulls.items()]))
    if copies:
        by = (label, *(name for name, _ in keys))
        found.insert(0, answered(scope.queries.union(copies), by, [(name, duck.quoted(name)) for name in by]))
    return scope.queries.union(found) if len(found) > 1 else found[0]


def _named(scope: Scope, keys: list[exp.Expr]) -> list[str]:
    """Names for the keys that a reader of the plan knows: the columns' own, or what is computed."""
    names: list[str] = []
    for key in keys:
        name = scope.text(key, as_written=True).replace('"', "")
        names.append(name if len(name) <= 60 and name not in names else scope.queries.fresh("g"))
    return names


def asked_of(scope: Scope) -> list[Asked]:
    """The aggregates that the answer asks for."""
    found: list[Asked] = []
    for part in scope.answers():
        for node in own(part):
            if not is_aggregate(node) or isinstance(node, exp.Filter):
                continue
            if isinstance(node.parent, exp.Filter) and not is_aggregate(node.parent):
                continue
            if any(is_aggregate(inner) for inner in own(node) if inner is not node):
                refuse(scope.view, node, "an aggregate of an aggregate", do="Compute the inner one in a subquery")
            whole = node.parent if isinstance(node.parent, exp.Filter) else node
            text = scope.text(whole)
            if any(each.text == text for each in found):
                continue
            condition = scope.text(whole.expression.this) if isinstance(whole, exp.Filter) else None
            counted = node.this
            argument = None
            if isinstance(counted, exp.Distinct):
                argument = scope.text(counted.expressions[0])
            elif isinstance(counted, exp.Expr) and not isinstance(counted, exp.Star | exp.Order):
                argument = scope.text(counted)
            found.append(Asked(node, text, argument, condition, scope.queries.fresh("a")))
    return found


def _grouping_sets(scope: Scope, keys: list[exp.Expr]) -> list[set[int]] | None:
    """For GROUPING SETS, ROLLUP and CUBE: which of the keys each set has. Adds their columns to the keys."""
    several = [key for key in keys if isinstance(key, exp.GroupingSets | exp.Rollup | exp.Cube)]
    if not several:
        return None
    keys[:] = [key for key in keys if not any(key is each for each in several)]
    plain = set(range(len(keys)))

    def place(node: exp.Expr) -> int:
        node = node.this if isinstance(node, exp.Paren) else node
        for number, known in enumerate(keys):
            if known == node:
                return number
        keys.append(node)
        return len(keys) - 1

    def places(node: exp.Expr) -> set[int]:
        return {place(each) for each in (node.expressions if isinstance(node, exp.Tuple) else [node])}

    def sets_of(node: exp.Expr) -> list[set[int]]:
        members = [places(each) for each in node.expressions]
        if isinstance(node, exp.Rollup):
            return [set().union(*members[:count]) for count in range(len(members), -1, -1)]
        if isinstance(node, exp.Cube):
            chosen = (itertools.combinations(members, count) for count in range(len(members), -1, -1))
            return [set().union(*each) for some in chosen for each in some]
        found: list[set[int]] = []
        for each in node.expressions:
            found += sets_of(each) if isinstance(each, exp.Rollup | exp.Cube) else [places(each)]
        return found

    crossed: list[set[int]] = [plain]
    for node in several:
        crossed = [one | other for one in crossed for other in sets_of(node)]
    return crossed


def _grouping_calls(scope: Scope, keys: list[exp.Expr], sets: list[set[int]], label: str) -> None:
    for part in scope.answers():
        for node in own(part):
            if function_name(node) in ("grouping", "grouping_id"):
                asked = [next(n for n, key in enumerate(keys) if key == each) for each in node.expressions]
                cases = " ".join(f"WHEN {number} THEN {_bits(asked, chosen)}" for number, chosen in enumerate(sets))
                scope.replaced.append((node.copy(), f"(CASE {label} {cases} END)::BIGINT"))


def _check_grouped(scope: Scope, keys: list[exp.Expr], asked: list[Asked]) -> None:
    for part in scope.answers():
        if part is scope.select.args.get("order"):
            continue
        left = part.copy().transform(
            lambda each: exp.null() if any(each == known for known, _ in scope.replaced) else each
        )
        for column in own(left):
            if isinstance(column, exp.Column) and column.table:
                refuse(
                    scope.view,
                    column,
                    f"{column.sql(DIALECT)} is neither grouped nor aggregated",
                    do="Add it to GROUP BY, or take max(...) of it",
                )


def _columns_in(node: exp.Expr) -> Iterator[str]:
    for column in node.find_all(exp.Column):
        yield f"{column.table}.{column.name}"


def _bits(asked: list[int], chosen: set[int]) -> int:
    """As SQL's grouping() counts: a bit a key, the first one the highest, set where the key is not in the set."""
    return sum((place not in chosen) << (len(asked) - 1 - at) for at, place in enumerate(asked))

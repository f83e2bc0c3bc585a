"""What changed between two described pipelines, in the user's words.

A description is JSON: of an SQL view what `Plan.described` says, of other pipelines whatever they say. Parts that are
known by their name get words of their own (`_WORDS`), all others are compared value by value and told by their path.
Dataclasses are `[name, revision, {field: value}]` in it; no class of a plan is needed here, so a description that an
older Headwater wrote can be compared with one of today.

A detail is one line, but for texts (SQL, the source of a function): their lines follow as a unified diff.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Description = Mapping[str, Any]
_MISSING = object()
_LONG = 60
_HIDDEN = ("_weight", "_deleted")


def differences(old: Description, new: Description) -> list[str]:
    """Empty if the two descriptions say the same."""
    return list(_fields("", old, new))


def _fields(path: str, old: Description, new: Description) -> Iterator[str]:
    """Two mappings, name by name: known names in their own words, whatever they are a part of."""
    for name in dict.fromkeys([*old, *new]):
        was, now = old.get(name, _MISSING), new.get(name, _MISSING)
        if was != now:
            shape, words = _WORDS.get(name, (_mapping, None))
            if words is not None and shape(was) and shape(now):
                yield from words(path, was, now)
            else:
                yield from _any(_under(path, name), was, now)


def _any(path: str, old: Any, new: Any) -> Iterator[str]:
    if old is _MISSING:
        yield f"{path} is new: {_short(new)}"
    elif new is _MISSING:
        yield f"{path} is gone, was {_short(old)}"
    elif _node(old) and _node(new) and old[0] == new[0]:
        if old[1] != new[1]:
            yield _revised(f"{path} {new[0]}".strip(), old, new)
        yield from _fields(path, old[2], new[2])
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from _fields(path, old, new)
    elif isinstance(old, str) and isinstance(new, str) and ("\n" in old or "\n" in new):
        yield from _text(f"{path} changed", old, new)
    elif _list(old) and _list(new) and len(old) == len(new):
        for number, (was, now) in enumerate(zip(old, new, strict=True), start=1):
            if was != now:
                yield from _any(_under(path, str(number)), was, now)
    else:
        yield f"{path} was {_short(old)}, is {_short(new)}"


# --- what has words of its own ---------------------------------------------------------------------


def _plan(path: str, old: Any, new: Any) -> Iterator[str]:
    if _node(old) and _node(new) and old[0] == new[0]:
        yield from _any("", old, new)
    else:
        yield f"it was {_named(old)}, is {_named(new)}"


def _reads(path: str, old: Any, new: Any) -> Iterator[str]:
    """Inputs are told apart by their topic; a topic that is read twice by its turn."""
    before, after = _by_topic(old), _by_topic(new)
    for key in dict.fromkeys([*before, *after]):
        topic = key[0]
        was, now = before.get(key), after.get(key)
        if was is None:
            yield f"topic {topic!r} is a new input"
        elif now is None:
            yield f"topic {topic!r} is no longer an input"
        elif was != now:
            yield from _read(topic, was, now)


def _read(topic: str, was: Description, now: Description) -> Iterator[str]:
    name = f"input {topic!r}"
    columns, conditions = (_seen(was), _seen(now)), (_condition(was), _condition(now))
    said = []
    if columns[0] != columns[1]:
        more = [each for each in columns[1] if each not in columns[0]]
        less = [each for each in columns[0] if each not in columns[1]]
        words = [f"also reads {', '.join(more)}" if more else "", f"no longer reads {', '.join(less)}" if less else ""]
        said.append(f"{name} {' and '.join(filter(None, words)) or 'reads its columns in another order'}")
    if conditions[0] != conditions[1]:
        said.append(f"filter of {name} was {conditions[0]}, is {conditions[1]}")
    if not said and was.get("sends") != now.get("sends"):
        said.append(f"what is taken of {name} changed")
    yield from said
    told = ("topic", "columns", "sends")
    rest = [{field: value for field, value in each.items() if field not in told} for each in (was, now)]
    yield from _fields(name, *rest)


def _nodes(path: str, old: Any, new: Any) -> Iterator[str]:
    for number, (was, now) in enumerate(itertools.zip_longest(old, new), start=1):
        if was is None or now is None:
            yield f"operator {number}, {_operator(was or now)}, is {'new' if was is None else 'gone'}"
        elif was != now:
            yield from _operators(number, was, now)


def _operators(number: int, old: Any, new: Any) -> Iterator[str]:
    was, now = _content(old), _content(new)
    left: Any = was.get("operator")
    right: Any = now.get("operator")
    if not (_node(left) and _node(right)) or left[0] != right[0]:
        yield f"operator {number} was {_operator(old)}, is {_operator(new)}"
        return
    name = f"operator {number}, {right[0]}"
    if left[1] != right[1]:
        yield _revised(name, left, right)
    changed = [field for field in dict.fromkeys([*left[2], *right[2]]) if left[2].get(field) != right[2].get(field)]
    if changed:
        yield f"{name}: its {', '.join(field.replace('_', ' ') for field in changed)} changed"
    if was.get("sends") != now.get("sends"):
        yield f"{name}: what is selected from its answer, or where it goes, changed"


def _columns(path: str, old: Any, new: Any) -> Iterator[str]:
    before, after = dict(old), dict(new)
    for name in dict.fromkeys([*before, *after]):
        if name not in before:
            yield f"column {name!r} ({after[name]}) is new"
        elif name not in after:
            yield f"column {name!r} is gone"
        elif before[name] != after[name]:
            yield f"column {name!r} was {before[name]}, is {after[name]}"
    if before == after:
        yield f"its columns were in the order {_names(before)}, are {_names(after)}"


def _key(path: str, old: Any, new: Any) -> Iterator[str]:
    yield f"{_of(path)}key was {_names(old)}, is {_names(new)}"


def _buckets(path: str, old: Any, new: Any) -> Iterator[str]:
    yield f"number of buckets was {old}, is {new}"


def _duckdb(path: str, old: Any, new: Any) -> Iterator[str]:
    yield f"DuckDB was {old}, is {new}"


def _hash(path: str, old: Any, new: Any) -> Iterator[str]:
    yield f"hash of keys was version {old}, is {new}"


def _engines(path: str, old: Any, new: Any) -> Iterator[str]:
    yield from _fields("", old, new)


def _upstream(path: str, old: Any, new: Any) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            change = "is now a view" if name not in old else "is no longer a view" if name not in new else "has changed"
            yield f"its input {name!r} {change}"


def _sql(path: str, old: Any, new: Any) -> Iterator[str]:
    yield from _text(f"{_of(path)}SQL changed", old, new)


def _source(path: str, old: Any, new: Any) -> Iterator[str]:
    """One function's source, or several by name."""
    if not (_mapping(old) and _mapping(new)):
        yield from _text("source of the function changed", old, new)
        return
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield from _text(f"source of {name} changed", old.get(name, ""), new.get(name, ""))


# --- which names have words, if their values have the shape that the words are for ------------------


def _list(part: Any) -> bool:
    return isinstance(part, Sequence) and not isinstance(part, str)


def _pairs(part: Any) -> bool:
    return _list(part) and all(_list(each) and len(each) == 2 for each in part)


def _mapping(part: Any) -> bool:
    return isinstance(part, dict)


def _anything(part: Any) -> bool:
    return part is not _MISSING


_WORDS: dict[str, tuple[Callable[[Any], bool], Callable[[str, Any, Any], Iterator[str]]]] = {
    "plan": (_anything, _plan),
    "reads": (_list, _reads),
    "nodes": (_list, _nodes),
    "schema": (_pairs, _columns),
    "key": (_list, _key),
    "buckets": (_anything, _buckets),
    "engines": (_mapping, _engines),
    "duckdb": (_anything, _duckdb),
    "hash": (_anything, _hash),
    "upstream": (_mapping, _upstream),
    "sql": (_anything, _sql),
    "source": (_anything, _source),
}


# --- pieces ----------------------------------------------------------------------------------------


def _text(what: str, old: Any, new: Any) -> Iterator[str]:
    if not (isinstance(old, str) and isinstance(new, str)):
        yield f"{what}: was {_short(old)}, is {_short(new)}"
        return
    lines = difflib.unified_diff(_lines(old), _lines(new), "was", "is", n=1, lineterm="")
    yield "\n".join([what, *lines])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def _by_topic(reads: Any) -> dict[tuple[str, int], Description]:
    found: dict[tuple[str, int], Description] = {}
    for read in reads:
        content = _content(read)
        topic = str(content.get("topic", "?"))
        found[topic, sum(1 for known, _ in found if known == topic)] = content
    return found


def _content(part: Any) -> Description:
    content = part[2] if _node(part) else part
    return content if isinstance(content, dict) else {"value": content}


def _seen(read: Description) -> list[str]:
    return [name for name in read.get("columns", ()) if name not in _HIDDEN]


def _condition(read: Description) -> str:
    """All conditions of what is sent, without the names that the planner made."""
    texts = " ".join(str(_content(send).get("sql") or "") for send in read.get("sends") or ())
    found = dict.fromkeys(_trimmed(each) for each in re.split(r"\bWHERE\b", texts)[1:])
    return " and ".join(found) or "none"


def _trimmed(text: str) -> str:
    """What stands before the parenthesis that closes the query of the condition."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            text = text[:place]
            break
    return text.strip().replace('"', "")


def _operator(level: Any) -> str:
    content = _content(level)
    return _named(content.get("operator", level))


def _named(part: Any) -> str:
    """An operator with what it is keyed by, such as Aggregate(clicks.page)."""
    if not _node(part):
        return _short(part)
    keys = part[2].get("keys") or part[2].get("key") or part[2].get("left_key") or ()
    keys = keys[0] if keys and _list(keys[0]) else keys  # one key an input
    return f"{part[0]}({', '.join(map(str, keys))})"


def _revised(name: str, old: Any, new: Any) -> str:
    return f"{name}: this Headwater computes it otherwise (revision {new[1]}, was {old[1]})"


def _node(part: Any) -> bool:
    return _list(part) and len(part) == 3 and isinstance(part[0], str) and isinstance(part[2], dict)


def _names(key: Any) -> str:
    return f"({', '.join(str(name) for name in key or ())})"


def _of(path: str) -> str:
    return f"{path}: " if path else ""


def _under(path: str, name: str) -> str:
    return f"{path}, {name}" if path else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"

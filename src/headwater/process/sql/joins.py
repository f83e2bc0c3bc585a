"""Two relations become one: on equality in buckets of their own, else by giving every bucket the smaller side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from sqlglot import exp

from headwater.process import duck
from headwater.process.keyed.forgetting import NOW, Forget
from headwater.process.keyed.join import Join, Until
from headwater.process.keyed.join import Part as Matched
from headwater.process.sql.apart import Apart
from headwater.process.sql.parse import refuse, sql_type
from headwater.process.sql.relation import Build, Lazy, Part, Rel
from headwater.records import WEIGHT

Kind = Literal["inner", "left", "right", "full", "semi", "anti"]

_PARTS: dict[Kind, tuple[Matched, ...]] = {
    "inner": ("pairs",),
    "left": ("pairs", "left only"),
    "right": ("pairs", "right only"),
    "full": ("pairs", "left only", "right only"),
    "semi": ("left matched",),
    "anti": ("left only",),
}


@dataclass(frozen=True)
class Equality:
    """Two expressions, one of either side, as SQL over its columns."""

    left: str
    right: str
    node: exp.Expr


def join(
    build: Build,
    left: Rel,
    right: Rel,
    kind: Kind,
    equal: Sequence[Equality],
    on: str | None,
    node: exp.Expr,
    apart: Apart | None = None,
) -> Rel:
    """All columns of both, or of the left one alone in a semi or anti join."""
    if not equal:
        return _without_equality(build, left, right, kind, on, node, apart)
    left, left_key = _keyed(build, left, right, equal, "left")
    right, right_key = _keyed(build, right, left, equal, "right")
    return _made(build, left, right, left_key, right_key, kind, on, apart)


def _keyed(
    build: Build, rel: Rel, other: Rel, equal: Sequence[Equality], side: Literal["left", "right"]
) -> tuple[Rel, tuple[str, ...]]:
    """The relation with a column for each equality's side; of types in which equal values are the same."""
    columns = [(name, duck.quoted(name)) for name in rel.columns]
    key = []
    for place, each in enumerate(equal):
        own, its = (each.left, each.right) if side == "left" else (each.right, each.left)
        kinds = [build.schema(r.project([("x", text)])).field("x").type for r, text in ((rel, own), (other, its))]
        plain = own.strip('"')
        if len(set(map(str, kinds))) <= 1 or all(map(_fits_int64, kinds)):
            if duck.quoted(plain) == own and plain in rel.columns:
                key.append(plain)
                continue
            text = own
        else:
            text = f"({own})::{_common(build, each, kinds)}"
        name = f"_{side}{place} of {len(rel.columns)}"
        columns.append((name, text))
        key.append(name)
    return rel.project(columns), tuple(key)


def _fits_int64(kind: pa.DataType) -> bool:
    """Whole numbers of which equal ones are the same, whatever their width."""
    return bool(pa.types.is_integer(kind) and not pa.types.is_uint64(kind))


def _common(build: Build, equality: Equality, kinds: Sequence[pa.DataType]) -> str:
    """The type in which DuckDB compares the two, or its refusal."""
    sample = pa.table({"a": pa.array([], kinds[0]), "b": pa.array([], kinds[1])})
    build.ask("SELECT a = b AS same FROM sample", sample=sample)
    if any(pa.types.is_string(kind) for kind in kinds):
        told = " and ".join(str(kind) for kind in kinds)
        refuse(build.view, equality.node, f"{equality.node.sql('duckdb')} compares {told}", do="Cast one of them")
    return sql_type(
        build.ask("SELECT CASE WHEN true THEN a ELSE b END AS x FROM sample", sample=sample).field("x").type
    )


def _made(
    build: Build,
    left: Rel,
    right: Rel,
    left_key: tuple[str, ...],
    right_key: tuple[str, ...],
    kind: Kind,
    on: str | None,
    apart: Apart | None,
    *,
    to_all: bool = False,
) -> Rel:
    left, right = build.made(left), build.made(right)
    kept = (*left.columns, *right.columns) if kind not in ("semi", "anti") else left.columns
    seen = [name for name in kept if not name.startswith(("_left", "_right"))]
    extra = [name for name in left_key if name not in seen]  # so that what follows knows how rows are spread
    output = (*seen, *extra)
    schemas = [build.schema(side).append(pa.field(WEIGHT, pa.int64())) for side in (left, right)]
    append_only = left.append_only and right.append_only and kind in ("inner", "semi")
    both = kind == "inner" and append_only
    untils, bounds = _bound(build, left, right, kind, apart)
    operator = Join(
        schemas[0], schemas[1], left_key, right_key, output, on, _PARTS[kind], not both, untils[0], untils[1]
    )
    spread = [left_key or left.columns, right_key] if to_all else None
    made = build.node(
        operator, [(left, left_key), (right, right_key)], schemas, to_all=[False, to_all], spread_by=spread
    )
    sql = f"SELECT {duck.columns(output)}, {WEIGHT} FROM changes"
    unique = _unique(left, right, left_key, right_key, kind)
    stays = left_key if kind in ("inner", "left", "semi", "anti") and not to_all else None
    return Rel(
        (*seen, *extra),
        (Part(made, sql),),
        (append_only and kind != "semi") or both,
        spread=stays,
        unique=unique,
        bounds={name: span for name, span in bounds.items() if name in seen},
    )


def _bound(
    build: Build, left: Rel, right: Rel, kind: Kind, apart: Apart | None
) -> tuple[tuple[Until | None, Until | None], dict[str, int]]:
    """How long each side's rows are kept, and by which columns it is known when a row that comes out is past.

    A row is kept while something may come that matches it, or takes it away again. One that decides whether a row of
    the other side is matched is kept while anything may come that matches that one.
    """
    if apart is None or build.retain is None:
        return (None, None), {}
    lefts, rights = apart.settled(left.bounds[apart.left], right.bounds[apart.right])
    decides = _PARTS[kind]
    kept_left = apart.decided_by_left(lefts, rights) if "right only" in decides else lefts
    kept_right = rights if decides in (("pairs",), ("pairs", "right only")) else apart.decided_by_right(lefts, rights)
    untils = (
        None if kept_left is None else (apart.left, kept_left + build.retain),
        None if kept_right is None else (apart.right, kept_right + build.retain),
    )
    of = [(apart.left, lefts, kind not in ("right", "full")), (apart.right, rights, kind in ("inner", "right"))]
    return untils, {name: span for name, span, never_null in of if never_null and span is not None}


def _unique(
    left: Rel, right: Rel, left_key: tuple[str, ...], right_key: tuple[str, ...], kind: Kind
) -> tuple[str, ...] | None:
    if kind in ("semi", "anti"):
        return left.unique
    if left.unique is None or right.unique is None:
        return None
    if kind in ("inner", "left") and right.unique and set(right.unique) <= set(right_key):
        return left.unique
    return (*left.unique, *right.unique) if kind == "inner" else None


def _without_equality(
    build: Build, left: Rel, right: Rel, kind: Kind, on: str | None, node: exp.Expr, apart: Apart | None
) -> Rel:
    turned = apart.swapped if apart is not None else None
    if kind == "right":
        swapped = _without_equality(build, right, left, "left", on, node, turned)
        return swapped.project((name, duck.quoted(name)) for name in (*left.columns, *right.columns))
    if kind == "full":
        return _made(build, left, right, (), (), kind, on, apart)
    if kind == "inner" and not left.append_only and right.append_only:
        swapped = _without_equality(build, right, left, kind, on, node, turned)  # a table is smaller than a stream
        return swapped.project((name, duck.quoted(name)) for name in (*left.columns, *right.columns))
    return _made(build, left, right, (), (), kind, on, apart, to_all=True)


def as_of(
    build: Build,
    left: Rel,
    right: Rel,
    *,
    outer: bool,
    equal: Sequence[Equality],
    later: tuple[str, str, str],
    node: exp.Expr,
) -> Rel:
    """Each left row with the nearest right one in time: `later` is (left, operator, right)."""
    left, left_key = _keyed(build, left, right, equal, "left") if equal else (left, ())
    right, right_key = _keyed(build, right, left, equal, "right") if equal else (right, ())
    seen = [name for name in (*left.columns, *right.columns) if not name.startswith(("_left", "_right"))]
    output = [*seen, *(name for name in left_key if name not in seen)]
    pairs = [f"l.{duck.quoted(a)} = r.{duck.quoted(b)}" for a, b in zip(left_key, right_key, strict=True)]
    on = " AND ".join([*pairs, f"{later[0]} {later[1]} {later[2]}"])
    method = "ASOF LEFT JOIN" if outer else "ASOF JOIN"
    tied = ", ".join([*map(duck.quoted, right_key), later[2]])
    first = (
        f"(FROM in1 QUALIFY row_number() OVER (PARTITION BY {tied} ORDER BY {duck.columns(sorted(right.columns))}) = 1)"
    )
    sql = f"SELECT {duck.columns(output)} FROM in0 AS l {method} {first} AS r ON {on}"
    wait = _settled_after(left, right, later) if build.retain is not None else None
    forget = _older_than_needed(later, right_key, wait + (build.retain or 0)) if wait is not None else None
    lazy = Lazy(((left, left_key), (right, right_key)), sql, forget=forget)
    bounds = {later[0].strip('"'): wait} if wait is not None else {}
    return Rel(tuple(output), (Part(lazy, "FROM changes"),), False, spread=left_key, unique=left.unique, bounds=bounds)


def _settled_after(left: Rel, right: Rel, later: tuple[str, str, str]) -> int | None:
    """How long after a left row's time (µs) something may come that makes it, or is nearer to it."""
    own, its = left.bounds.get(later[0].strip('"')), right.bounds.get(later[2].strip('"'))
    return None if own is None or its is None or later[1] not in (">", ">=") else max(own, its)


def _older_than_needed(later: tuple[str, str, str], right_key: tuple[str, ...], wait: int) -> Forget:
    """Left rows that are settled, and right rows that are not the nearest to any that is still to come."""
    ends = [f"epoch_us({text}) + {wait}" for text in (later[0], later[2])]
    open_ = [f"coalesce({end} >= (SELECT {NOW} FROM {NOW}), true)" for end in ends]
    by = f"PARTITION BY {duck.columns(right_key)} " if right_key else ""
    last = f"rank() OVER ({by}ORDER BY {open_[1]}, {later[2]} DESC) = 1"
    return Forget((ends[0], ends[1]), (f"FROM in0 WHERE {open_[0]}", f"FROM in1 QUALIFY {open_[1]} OR {last}"))

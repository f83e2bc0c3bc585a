"""Views over HTTP: rows, one row, waiting for one's own writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from headwater.client.following import Following
from headwater.client.steps import ARROW, Answer, Call, Steps, asked
from headwater.log.position import Position

TIMEOUT_S = 30.0


def read(
    view: str,
    *,
    where: str | None = None,
    order_by: str | Sequence[str] | None = None,
    limit: int = 10_000,
    columns: Sequence[str] | None = None,
    after: Position | None = None,
    as_of: Position | datetime | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Steps[pa.Table]:
    """The rows, 10,000 at most; with `after`, as soon as they cover that position, such as one's own append.

    `where` is a condition in SQL, `order_by` names columns ("n DESC, page"), `as_of` asks for the rows as they were.
    """
    told: dict[str, Any] = {"where": where, "limit": limit, "columns": None if columns is None else list(columns)}
    told["order_by"] = order_by if order_by is None or isinstance(order_by, str) else ", ".join(order_by)
    told["as_of"] = as_of.isoformat() if isinstance(as_of, datetime) else as_of and str(as_of)
    asked_for = {name: value for name, value in told.items() if value is not None}
    return (yield from _asked(view, after, timeout_s, asked_for)).table()


def get(
    view: str, key: Any, *, after: Position | None = None, timeout_s: float = TIMEOUT_S
) -> Steps[dict[str, Any] | None]:
    """The row of a key (a value, or one value a key column), or None."""
    values: Sequence[Any] = key if isinstance(key, tuple | list) else (key,)
    answer = yield from _asked(view, after, timeout_s, {"key": [_text(value) for value in values]})
    rows: list[dict[str, Any]] = answer.table().to_pylist()
    return rows[0] if rows else None


def position(view: str) -> Steps[Position]:
    """How far the view's inputs are covered by what `read` and `get` answer."""
    answer = yield from _asked(view, None, 0, {"limit": 1})
    return Position.parse(answer.headers["headwater-position"])


def path_of(view: str) -> str:
    return f"/views/{quote(view, safe='')}"


def _asked(view: str, after: Position | None, timeout_s: float, params: dict[str, Any]) -> Steps[Answer]:
    wait = {"after": str(after), "timeout_s": timeout_s} if after is not None else {}
    call = Call("GET", path_of(view), {**params, **wait}, {"Accept": ARROW}, wait_s=timeout_s if wait else 0)
    return (yield from asked(call))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def following(name: str, last_id: str | None) -> Following:
    return Following(f"{path_of(name)}/changes", {}, last_id)

"""Views: their rows, filtered and ordered, now or as they were; one row by its key; once they reflect one's writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from headwater.errors import BadPosition, UsageError
from headwater.log.position import Position
from headwater.serve.http.answers import CONTENT, form_of, json_answer, rows_answer
from headwater.serve.http.limits import MOST_ROWS, MOST_WAIT_S
from headwater.serve.http.permissions import needs, needs_somebody
from headwater.serve.http.served import Served
from headwater.serve.view import View


def view_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["views"])

    @router.get("/views", dependencies=[needs_somebody()])
    def list_views(request: Request) -> list[dict[str, Any]]:
        """All views that you may read."""
        return [_described(view) for name, view in served.views.items() if served.may_read(request, "view", name)]

    @router.get("/views/{view}", dependencies=[needs("read", "view")], responses=CONTENT)
    async def read_view(
        view: str,
        request: Request,
        after: Annotated[str | None, Query(max_length=10_000)] = None,
        timeout_s: Annotated[float, Query(ge=0, le=MOST_WAIT_S)] = 30,
        key: Annotated[list[str] | None, Query()] = None,
        where: Annotated[str | None, Query(max_length=10_000)] = None,
        order_by: Annotated[str | None, Query(max_length=1000)] = None,
        columns: Annotated[list[str] | None, Query()] = None,
        as_of: Annotated[str | None, Query(max_length=10_000)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 1000,
    ) -> Response:
        """The view's rows, or the row of one key; with `after`, once they reflect that position.

        `where` is a condition in SQL (`n >= 5 AND page = '/a'`), `order_by` names columns (`n DESC, page`), `as_of`
        asks for the rows as they were at a position or a time.
        """
        form = form_of(request)
        asked = served.view(view)
        if key is not None and any(each is not None for each in (where, order_by, columns, as_of)):
            raise UsageError(what="a key is asked for alone", do="Leave out where, order_by, columns and as_of")
        if after is not None:
            await served.covering.wait(asked, Position.parse(after), timeout_s)
        if key is not None:
            store = asked.store
            row, mark = await run_in_threadpool(store.get, key)
            about = {"view": view, "position": str(mark.covers)}
            found = [] if row is None else [row]
            if form == "json":
                return json_answer({**about, "rows": found})
            return rows_answer(form, pa.Table.from_pylist(found, store.schema), about)
        told = {"where": where, "order_by": order_by, "limit": limit, "columns": columns}
        about, rows = await run_in_threadpool(_rows, asked, told, as_of)
        return await run_in_threadpool(rows_answer, form, rows, {"view": view, **about})

    return router


def _rows(view: View, told: dict[str, Any], as_of: str | None) -> tuple[dict[str, str], pa.Table]:
    if as_of is not None:
        return {}, view.read(as_of=_moment(as_of), **told)
    rows, mark = view.answer(**told)
    return {"position": str(mark.covers)}, rows


def _moment(text: str) -> Position | datetime:
    if "=" in text:
        return Position.parse(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadPosition(text=text[:100], why="it is no time either, such as 2026-01-31T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _described(view: View) -> dict[str, Any]:
    columns = {field.name: str(field.type) for field in view.schema}
    covers = str(view.position)
    return {"view": view.name, "key": view.spec.key, "columns": columns, "position": covers, "sql": view.spec.sql}

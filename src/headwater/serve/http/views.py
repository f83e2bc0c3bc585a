"""Views: their rows, one row by its key, once they reflect what one has written."""

from __future__ import annotations

from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from headwater.log.position import Position
from headwater.serve.http.answers import CONTENT, form_of, rows_answer
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
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 1000,
    ) -> Response:
        """The view's rows, or the row of one key; with `after`, once they reflect that position."""
        form = form_of(request)
        asked = served.view(view)
        if after is not None:
            await served.covering.wait(asked, Position.parse(after), timeout_s)
        if key is not None:
            row, mark = await run_in_threadpool(asked.store.get, key)
            rows = asked.spec.schema.empty_table() if row is None else pa.Table.from_pylist([row], asked.spec.schema)
        else:
            rows, mark = await run_in_threadpool(asked.store.read, limit=limit)
        return rows_answer(form, rows, {"view": view, "position": str(mark.covers)})

    return router


def _described(view: View) -> dict[str, Any]:
    columns = {field.name: str(field.type) for field in view.spec.schema}
    covers = str(view.position)
    return {"view": view.name, "key": view.spec.key, "columns": columns, "position": covers, "sql": view.spec.sql}

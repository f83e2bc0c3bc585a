"""SQL: one SELECT over what the asker may read."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from headwater.serve.http.answers import CONTENT, form_of, rows_answer
from headwater.serve.http.groups import Strict
from headwater.serve.http.limits import MOST_ROWS, MOST_WAIT_S
from headwater.serve.http.permissions import needs_somebody
from headwater.serve.http.served import Served
from headwater.serve.sql import Asking, parse


class Sql(Strict):
    sql: Annotated[str, Field(min_length=1, max_length=100_000)]
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 1000
    timeout_s: Annotated[float, Field(gt=0, le=MOST_WAIT_S)] = 10.0


def sql_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["sql"])

    def rows_of_view(name: str) -> pa.Table | None:
        return served.views[name].read() if name in served.views else None

    @router.post("/sql", dependencies=[needs_somebody()], responses=CONTENT)
    async def ask(asked: Sql, request: Request) -> Response:
        """A SELECT over topics and views that you may read; `truncated` says whether there were more rows."""
        form = form_of(request)
        question = await run_in_threadpool(parse, asked.sql)
        for name in question.names:
            kind = "view" if name in served.views else "topic"
            served.guard.check(request.state.principal, "read", f"{kind}:{name}")
        asking = Asking(served.log, rows_of_view, read_rows=served.limits.sql_read_rows)
        timeout_s = min(asked.timeout_s, served.limits.sql_s)
        answer = await run_in_threadpool(asking.ask, question, limit=asked.limit, timeout_s=timeout_s)
        return await run_in_threadpool(rows_answer, form, answer.rows, {"truncated": answer.truncated})

    return router

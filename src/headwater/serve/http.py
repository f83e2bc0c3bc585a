"""The HTTP API: append to topics, read views, follow a view live. Errors are problem+json.

Handlers that touch disk are plain functions, so FastAPI runs them in threads; those that wait are coroutines.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from headwater.capture.intake import BODY_BYTES, Intake, gathered
from headwater.errors import HeadwaterError, TopicNotFound, UsageError, ViewNotFound, codes
from headwater.log.position import Epoch, Position
from headwater.log.protocol import Appended, Producer
from headwater.log.topic import Topic
from headwater.serve.view import POLL_S, View

ROWS = 10_000
LIVE_ROWS = 1000
LIVE_S = 0.2
PING_S = 15.0


class AppendAnswer(BaseModel):
    position: str
    """The token of this write: give it as `after` to read a view that reflects it."""
    append: int
    repeated: bool


def make_api(topics: Mapping[str, Topic], views: Mapping[str, View]) -> FastAPI:
    api = FastAPI(title="Headwater", docs_url=None, redoc_url=None)
    api.add_exception_handler(HeadwaterError, _problem)
    api.add_exception_handler(RequestValidationError, _invalid)
    intakes: dict[str, Intake] = {}

    def topic_named(name: str) -> Topic:
        if name not in topics:
            raise TopicNotFound(topic=name, known=topics)
        return topics[name]

    def view_named(name: str) -> View:
        if name not in views:
            raise ViewNotFound(view=name, known=views)
        return views[name]

    @api.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    @api.post("/topics/{name}/records")
    async def append(
        name: str,
        request: Request,
        producer: Annotated[str | None, Query(max_length=200)] = None,
        sequence: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    ) -> AppendAnswer:
        """One record (a JSON object) or several (an array, NDJSON, Arrow), or CloudEvents. Retrying is safe with
        producer and sequence; an event is appended once anyway."""
        topic = topic_named(name)
        if (producer is None) != (sequence is None):
            raise UsageError(what="producer and sequence go together", do="Give both or neither")
        body = await gathered(request.stream(), limit_bytes=BODY_BYTES)
        who = Producer(producer, Epoch(0)) if producer is not None else None
        take = intakes.setdefault(name, Intake(topic)).take
        kind = request.headers.get("content-type", "")
        done: Appended = await run_in_threadpool(take, body, kind, request.headers, producer=who, sequence=sequence)
        return AppendAnswer(position=str(done.position), append=done.number, repeated=done.repeated)

    @api.get("/views")
    def list_views() -> list[dict[str, Any]]:
        return [_described(view) for view in views.values()]

    @api.get("/views/{name}")
    async def read_view(
        name: str,
        after: Annotated[str | None, Query(max_length=10_000)] = None,
        timeout_s: Annotated[float, Query(ge=0, le=300)] = 30,
        key: Annotated[list[str] | None, Query()] = None,
        limit: Annotated[int, Query(ge=1, le=ROWS)] = 1000,
    ) -> JSONResponse:
        """The view's rows, or the row of one key; with `after`, once they reflect that position."""
        view = view_named(name)
        if after is not None:
            await _covered(view, Position.parse(after), timeout_s)
        if key is not None:
            row, mark = await run_in_threadpool(view.store.get, key)
            rows = [] if row is None else [row]
        else:
            table, mark = await run_in_threadpool(view.store.read, limit=limit)
            rows = table.to_pylist()
        return _json({"view": view.name, "position": str(mark.covers), "rows": rows})

    @api.get("/views/{name}/live")
    async def live(name: str, request: Request) -> StreamingResponse:
        """Server-sent events: the first rows of the view, again whenever it changed."""
        view = view_named(name)
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(_live(view, request), media_type="text/event-stream", headers=headers)

    return api


async def _live(view: View, request: Request) -> AsyncIterator[str]:
    shown: str | None = None
    said_at = time.monotonic()
    while not await request.is_disconnected():
        table, mark = await run_in_threadpool(view.store.read, limit=LIVE_ROWS)
        position = str(mark.covers)
        if position != shown:
            shown, said_at = position, time.monotonic()
            data = json.dumps({"position": position, "rows": table.to_pylist()}, default=_value)
            yield f"id: {position}\nevent: rows\ndata: {data}\n\n"
        elif time.monotonic() - said_at > PING_S:
            said_at = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(LIVE_S)


async def _covered(view: View, asked: Position, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not await run_in_threadpool(view.covers, asked):
        if time.monotonic() >= deadline:
            raise view.not_covered(asked, timeout_s)
        await asyncio.sleep(POLL_S)


def _described(view: View) -> dict[str, Any]:
    columns = {field.name: str(field.type) for field in view.spec.schema}
    covers = str(view.position)
    return {"view": view.name, "key": view.spec.key, "columns": columns, "position": covers, "sql": view.spec.sql}


def _json(content: Any) -> JSONResponse:
    return JSONResponse(json.loads(json.dumps(content, default=_value)))


def _value(value: Any) -> Any:
    if isinstance(value, datetime.date | datetime.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadwaterError)
    status, _ = codes(error)
    content = {"type": "about:blank", "title": type(error).__name__, "status": status, "detail": str(error)}
    return JSONResponse(content, status_code=status, media_type="application/problem+json")


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    detail = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors())
    content = {"type": "about:blank", "title": "BadRequest", "status": 422, "detail": detail}
    return JSONResponse(content, status_code=422, media_type="application/problem+json")

"""Small appends, answered before any route is looked for: what rows by key are among reads, these are among writes.

The plain form of it, `POST /topics/NAME/records` with a little JSON, is read here and written together with all that
came meanwhile: one thread at a time writes for a topic, however many clients wait. Everything else is left to the
route, with the body if that was read already: other bodies, repeatable appends, topics that are bounded, and whatever
is refused before it is a record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.errors import HeadwaterError
from headwater.log.protocol import Appended
from headwater.log.topic import FEW, Topic
from headwater.serve.http.answers import JSON
from headwater.serve.http.problems import told
from headwater.serve.http.served import Served

PREFIX, SUFFIX = "/topics/", "/records"
ROUTE = SimpleNamespace(path="/topics/{topic}/records")
"""By which it is counted."""
SMALL_BYTES = 64 * 1024
MOST = 256
"""Appends that are written together."""
OTHERWISE = frozenset({b"content-encoding", b"idempotency-key", b"ce-specversion"})
"""Headers by which an append is not a plain one."""


class SmallAppends:
    """For one event loop."""

    def __init__(self, app: ASGIApp, *, served: Served) -> None:
        self._app = app
        self._served = served
        self._writers: dict[str, Writer] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = _plain(scope)
        if name is None or not self._may(name, scope):
            await self._app(scope, receive, send)
            return
        try:
            messages, body = await _whole(receive)
        except HTTPException as error:  # too slow or too large: the route's to say, as of any other body
            await self._app(scope, _raising(error), send)
            return
        rows = _rows(body) if body is not None else None
        if rows is None:
            await self._app(scope, _again(messages, receive), send)
            return
        scope["route"] = ROUTE
        try:
            done = await self._writer(name).append(rows)
        except HeadwaterError as error:
            await told(error)(scope, receive, send)
            return
        answer = {"position": str(done.position), "append": done.number, "repeated": done.repeated}
        content = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        headers = [(b"content-length", b"%d" % len(content)), (b"content-type", JSON.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _writer(self, name: str) -> Writer:
        if name not in self._writers:
            self._writers[name] = Writer(self._served.topic(name))
        return self._writers[name]

    def _may(self, name: str, scope: Scope) -> bool:
        """False: it is the route's to say so."""
        guard = self._served.guard
        try:
            guard.check(guard.who(Request(scope)), "append", f"topic:{name}")
            return name in self._served.topics
        except HeadwaterError:
            return False


class Writer:
    """The appends of one topic: those that come while others are being written go together into the next write."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._waiting: list[tuple[list[Any], asyncio.Future[Appended | None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def append(self, rows: list[Any]) -> Appended:
        answer: asyncio.Future[Appended | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, answer))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        done = await answer
        if done is None:  # it takes an append of its own, which may have to wait
            done = await run_in_threadpool(self._topic.append_parts, rows)
        return done

    async def _write(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            found: Sequence[Any]
            try:
                found = await run_in_threadpool(self._topic.append_each, [rows for rows, _ in some])
            except Exception as error:  # noqa: BLE001  (each request raises it)
                found = [error] * len(some)
            for each, (_, answer) in zip(found, some, strict=True):
                if answer.done():  # nobody waits any more
                    continue
                if isinstance(each, Exception):
                    answer.set_exception(each)
                else:
                    answer.set_result(each)


def _plain(scope: Scope) -> str | None:
    """The topic's name, if it looks like a plain append."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope["query_string"]:
        return None
    path: str = scope["path"]
    if not path.startswith(PREFIX) or not path.endswith(SUFFIX):
        return None
    headers = dict(scope["headers"])
    size = headers.get(b"content-length", b"")
    small = size.isdigit() and int(size) <= SMALL_BYTES
    if headers.get(b"content-type") != JSON.encode() or not small or not OTHERWISE.isdisjoint(headers):
        return None
    return path[len(PREFIX) : -len(SUFFIX)]


async def _whole(receive: Receive) -> tuple[list[Message], bytes | None]:
    """All that was received, and the body; None if the other side went away."""
    messages: list[Message] = []
    while True:
        messages.append(await receive())
        if messages[-1]["type"] != "http.request":
            return messages, None
        if not messages[-1].get("more_body", False):
            return messages, b"".join(each.get("body", b"") for each in messages)


def _rows(body: bytes) -> list[Any] | None:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    rows = parsed if isinstance(parsed, list) else [parsed]
    return rows if len(rows) <= FEW else None


def _raising(error: HTTPException) -> Receive:
    async def receive() -> Message:
        raise error

    return receive


def _again(messages: list[Message], receive: Receive) -> Receive:
    """As if nothing had been received yet."""
    left = iter(messages)

    async def again() -> Message:
        return next(left, None) or await receive()

    return again

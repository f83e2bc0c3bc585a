"""Rows by their key, answered before any route is looked for.

A row by its key is some ten microseconds of SQLite; to find the route, check the parameters and hand the work to a
thread costs twenty times as much. So its plain form, `GET /views/NAME?key=...` for JSON, is answered here, on the event
loop. Everything else is left to the route: more parameters, another form, a view that is about to change its version,
and whatever is refused. It answers the same, and knows how to say what is wrong.

The loop must not be held up: readers of SQLite's WAL wait for nobody, but a disk may be slow. After a read that was,
the reads of a while go to threads.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.errors import HeadwaterError
from headwater.serve.http.answers import JSON, as_json
from headwater.serve.http.served import Served

PREFIX = "/views/"
ROUTE = SimpleNamespace(path="/views/{view}")
"""By which it is counted."""
PLAIN = (b"*/*", JSON.encode())
SLOW_S = 0.005
A_WHILE_S = 1.0


class PointReads:
    def __init__(self, app: ASGIApp, *, served: Served) -> None:
        self._app = app
        self._served = served
        self._not_before = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = self._answered(scope) if _is_plain(scope) else None
        if body is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = ROUTE
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", JSON.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answered(self, scope: Scope) -> bytes | None:
        """None: it is the route's to answer, or to refuse."""
        name = scope["path"][len(PREFIX) :]
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        view = self._served.views.get(name)
        began = time.monotonic()
        if view is None or began < self._not_before or any(parameter != "key" for parameter, _ in given):
            return None
        guard = self._served.guard
        try:
            guard.check(guard.who(Request(scope)), "read", f"view:{name}")
            found = view.get_at_once([value for _, value in given])
        except HeadwaterError:
            return None
        now = time.monotonic()
        if now - began > SLOW_S:
            self._not_before = now + A_WHILE_S
        if found is None:
            return None
        row, mark = found
        rows = [] if row is None else [row]
        return as_json({"view": name, "position": str(mark.covers), "rows": rows}).encode()


def _is_plain(scope: Scope) -> bool:
    return bool(
        scope["type"] == "http"
        and scope["method"] == "GET"
        and scope["query_string"].startswith(b"key=")
        and scope["path"].startswith(PREFIX)
        and all(value in PLAIN for name, value in scope["headers"] if name == b"accept")
    )

"""The outermost layer of the server: what holds for every request, whatever route it takes.

1  A body is limited, in size and in the time it takes, before anybody reads it.
2  What nobody expected becomes a problem without details; the details go to the server's log, secrets taken out.
3  Requests are counted and timed by their route.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.errors import TooLarge
from headwater.serve.http.limits import Limits
from headwater.serve.http.metrics import Traffic
from headwater.serve.http.problems import failed

words = logging.getLogger("headwater.http")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})


class Door:
    def __init__(self, app: ASGIApp, *, limits: Limits, traffic: Traffic) -> None:
        self._app = app
        self._limits = limits
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._note(scope, status, time.perf_counter() - begun)
            await send(message)

        try:
            await self._app(scope, self._limited(receive), noted)
        except Exception:  # noqa: BLE001 whatever it is, the client gets a problem and the log the rest
            self._traffic.failures.inc()
            words.exception("%s %s failed", scope["method"], scope["path"])
            if not status:
                await failed()(scope, receive, noted)

    def _limited(self, receive: Receive) -> Receive:
        taken = 0
        deadline = time.monotonic() + self._limits.body_s
        whole = False

        async def limited() -> Message:
            nonlocal taken, whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the body took too long to come. Send it again, in smaller parts.") from None
            taken += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if taken > self._limits.body_bytes:
                raise HTTPException(413, str(TooLarge(limit_bytes=self._limits.body_bytes)))
            return message

        return limited

    def _note(self, scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._traffic.note(method, route, status, seconds)

"""Server-sent events as a response that ends when the other side is gone, and is counted while it is there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.serve.http.limits import Connections

MEDIA_TYPE = "text/event-stream"
# Proxies are asked neither to keep nor to hold back what is sent.
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

CONTENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
}
"""For the description of routes that answer so."""


class EventStream(Response):
    media_type = MEDIA_TYPE

    def __init__(self, texts: AsyncIterator[str], connections: Connections) -> None:
        connections.check()
        super().__init__(None, headers=HEADERS)
        del self.headers["content-length"]
        self._texts = texts
        self._connections = connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """It sends until the other side is gone or the server stops: whichever comes first ends the others."""
        with self._connections.one_more() as stopped:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            tasks = [asyncio.create_task(each) for each in (self._send(send), _gone(receive), stopped.wait())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if tasks[1].cancelled():  # the other side is still there: it is told the end, and comes again
                with contextlib.suppress(OSError):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        try:
            async for text in self._texts:
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        except OSError:
            return  # the connection broke while we wrote
        finally:
            await self._texts.aclose()  # type: ignore[attr-defined]


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

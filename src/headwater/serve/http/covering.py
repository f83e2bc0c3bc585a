"""Waiting until a view reflects a position: all who wait for the same view are looked after together."""

from __future__ import annotations

import asyncio
import time

from starlette.concurrency import run_in_threadpool

from headwater.log.position import Position
from headwater.serve.view import POLL_S, View


class Covering:
    """For one event loop. Who waits costs a future; one thread at a time looks at a view, however many wait for it."""

    def __init__(self) -> None:
        self._looks: dict[str, asyncio.Task[None]] = {}

    async def wait(self, view: View, asked: Position, timeout_s: float) -> None:
        """Until `view` covers `asked`; `NotCovered` when the time is up."""
        deadline = time.monotonic() + timeout_s
        while not await run_in_threadpool(view.covers, asked):
            if time.monotonic() >= deadline:
                raise view.not_covered(asked, timeout_s)
            await self._moved(view)

    async def _moved(self, view: View) -> None:
        """Until the view has gone on, or may have."""
        look = self._looks.get(view.name)
        if look is None or look.done():
            look = self._looks[view.name] = asyncio.create_task(_moved(view))
        await asyncio.wait([look])
        look.result()


async def _moved(view: View) -> None:
    before = await run_in_threadpool(lambda: view.position)
    for _ in range(10):
        await asyncio.sleep(POLL_S)
        if await run_in_threadpool(lambda: view.position) != before:
            return

"""One thread that watches the log for all requests that wait: who waits costs a future, not a thread."""

from __future__ import annotations

import asyncio

from headwater.errors import HeadwaterError
from headwater.log.position import AppendNumber
from headwater.log.protocol import Log

WAKE_S = 0.25


class Pulse:
    """For one event loop. It watches only while somebody waits."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._newest = AppendNumber(0)
        self._waiting: dict[asyncio.Future[None], AppendNumber] = {}
        self._watching: asyncio.Task[None] | None = None

    async def wait(self, after: AppendNumber, timeout_s: float) -> AppendNumber:
        """The newest append number known, as soon as it is greater than `after`, or when the time is up."""
        if self._newest > after or timeout_s <= 0:
            return max(self._newest, after)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[mine] = after
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait([mine], timeout=timeout_s)
        finally:
            self._waiting.pop(mine, None)
        return max(self._newest, after)

    async def _watch(self) -> None:
        try:
            while self._waiting:
                self._newest = await asyncio.to_thread(self._log.wait, self._newest, WAKE_S)
                for future, after in self._waiting.items():
                    if self._newest > after and not future.done():
                        future.set_result(None)
                await asyncio.sleep(0)
        except HeadwaterError:
            pass  # whoever waits looks for itself when its time is up, and meets the error there
        finally:
            self._watching = None

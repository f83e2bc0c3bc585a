"""The client for coroutines: it carries out the same steps, and awaits between them."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

from headwater.client import asking, consuming, topics, views
from headwater.client.consuming import Membership
from headwater.client.following import QUIET_S, FeedEvent, Following
from headwater.client.steps import PATIENCE_S, Answer, Call, Lost, Rest, Steps, connection_settings, words_of
from headwater.log.groups import SESSION_S
from headwater.log.position import Position

About = TypeVar("About")
P = ParamSpec("P")
T = TypeVar("T")


class AsyncHandle(Generic[About]):
    """A thing on the server: its name, and the client that reaches it."""

    def __init__(self, client: AsyncClient, about: About) -> None:
        self._client = client
        self._about = about


def awaited(
    make: Callable[Concatenate[Any, P], Steps[T]],
) -> Callable[Concatenate[AsyncHandle[Any], P], Coroutine[Any, Any, T]]:
    """Steps as a coroutine method."""

    @functools.wraps(make)
    async def method(self: AsyncHandle[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._client.carry_out(make(self._about, *args, **kwargs))

    return method


class AsyncRemoteTopic(AsyncHandle[str]):
    append = awaited(topics.append)
    read = awaited(topics.read)
    page = awaited(topics.page)
    describe = awaited(topics.describe)

    def follow(self, start: Position | str = "end", *, last_id: str | None = None) -> AsyncIterator[FeedEvent]:
        """Records as they come, for ever; a connection that breaks is resumed, nothing twice and nothing left out."""
        return self._client.follow(topics.following(self._about, start, last_id))


class AsyncRemoteView(AsyncHandle[str]):
    read = awaited(views.read)
    get = awaited(views.get)
    position = awaited(views.position)

    def changes(self, *, last_id: str | None = None) -> AsyncIterator[FeedEvent]:
        """All rows, then whatever changes, for ever; resumed like `AsyncRemoteTopic.follow`."""
        return self._client.follow(views.following(self._about, last_id))


class AsyncRemoteQueue(AsyncHandle[str]):
    create = awaited(consuming.create_queue)
    take = awaited(consuming.take)
    acknowledge = awaited(consuming.acknowledge)
    release = awaited(consuming.release)
    reject = awaited(consuming.reject)
    extend = awaited(consuming.extend)


class AsyncRemoteConsumer(AsyncHandle[Membership]):
    poll = awaited(Membership.poll)
    commit = awaited(Membership.commit)

    async def __aenter__(self) -> AsyncRemoteConsumer:
        await self._client.carry_out(self._about.join())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.carry_out(self._about.leave())


class AsyncClient(AsyncHandle[str]):
    """A server at `url`, for one event loop. The same calls as `Client`, awaited."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        timeout_s: float = PATIENCE_S,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        import httpx2

        super().__init__(self, url)
        self._http = httpx2.AsyncClient(**connection_settings(url, token, timeout_s, verify))
        self._timeout_s = timeout_s

    sql = awaited(asking.sql)
    command = awaited(asking.command)
    topics = awaited(asking.topics)
    views = awaited(asking.views)

    def topic(self, name: str) -> AsyncRemoteTopic:
        return AsyncRemoteTopic(self, name)

    def view(self, name: str) -> AsyncRemoteView:
        return AsyncRemoteView(self, name)

    def queue(self, name: str) -> AsyncRemoteQueue:
        return AsyncRemoteQueue(self, name)

    def consumer(
        self,
        group: str,
        topic: str,
        *,
        member: str | None = None,
        session_s: float = SESSION_S,
        start: Literal["start", "end"] = "start",
    ) -> AsyncRemoteConsumer:
        """A member of a group: `async with client.consumer("billing", "orders") as consumer:`."""
        return AsyncRemoteConsumer(self, Membership(group, topic, member=member, session_s=session_s, start=start))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def carry_out(self, steps: Steps[T]) -> T:
        answer: Answer | Lost | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Rest):
                await asyncio.sleep(step.seconds)
                answer = None
            else:
                answer = await self._send(step)

    async def _send(self, call: Call) -> Answer | Lost:
        import httpx2

        try:
            patience_s = self._timeout_s + call.wait_s
            found = await self._http.request(**call.request(), content=call.content, timeout=patience_s)
        except httpx2.TransportError as error:
            return Lost(self._about, words_of(error))
        return Answer(found.status_code, found.headers, found.content)

    async def follow(self, following: Following) -> AsyncIterator[FeedEvent]:
        import httpx2

        while True:
            call = following.call()
            try:
                async with self._http.stream(**call.request(), timeout=QUIET_S) as found:
                    if found.status_code != 200:
                        rest_s = following.refused(Answer(found.status_code, found.headers, await found.aread()))
                    else:
                        async for data in found.aiter_bytes():
                            for event in following.read(data):
                                yield event
                        rest_s = following.lost("the server ended it")
            except httpx2.TransportError as error:
                rest_s = following.lost(words_of(error))
            await asyncio.sleep(rest_s)

"""The client for plain code: it carries out steps, one after the other."""

from __future__ import annotations

import functools
import ssl
import time
from collections.abc import Callable, Iterator
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


class Handle(Generic[About]):
    """A thing on the server: its name, and the client that reaches it."""

    def __init__(self, client: Client, about: About) -> None:
        self._client = client
        self._about = about


def carried_out(make: Callable[Concatenate[Any, P], Steps[T]]) -> Callable[Concatenate[Handle[Any], P], T]:
    """Steps as a method."""

    @functools.wraps(make)
    def method(self: Handle[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._client.carry_out(make(self._about, *args, **kwargs))

    return method


class RemoteTopic(Handle[str]):
    append = carried_out(topics.append)
    read = carried_out(topics.read)
    page = carried_out(topics.page)
    describe = carried_out(topics.describe)

    def follow(self, start: Position | str = "end", *, last_id: str | None = None) -> Iterator[FeedEvent]:
        """Records as they come, for ever; a connection that breaks is resumed, nothing twice and nothing left out."""
        return self._client.follow(topics.following(self._about, start, last_id))


class RemoteView(Handle[str]):
    read = carried_out(views.read)
    get = carried_out(views.get)
    position = carried_out(views.position)

    def changes(self, *, last_id: str | None = None) -> Iterator[FeedEvent]:
        """All rows, then whatever changes, for ever; resumed like `RemoteTopic.follow`."""
        return self._client.follow(views.following(self._about, last_id))


class RemoteQueue(Handle[str]):
    create = carried_out(consuming.create_queue)
    take = carried_out(consuming.take)
    acknowledge = carried_out(consuming.acknowledge)
    release = carried_out(consuming.release)
    reject = carried_out(consuming.reject)
    extend = carried_out(consuming.extend)


class RemoteConsumer(Handle[Membership]):
    poll = carried_out(Membership.poll)
    commit = carried_out(Membership.commit)

    def __enter__(self) -> RemoteConsumer:
        self._client.carry_out(self._about.join())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.carry_out(self._about.leave())


class Client(Handle[str]):
    """A server at `url`. For any number of threads; each consumer for one at a time.

    `verify` is an SSL context for certificates that this machine does not know by itself.
    """

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
        self._http = httpx2.Client(**connection_settings(url, token, timeout_s, verify))
        self._timeout_s = timeout_s

    sql = carried_out(asking.sql)
    command = carried_out(asking.command)
    topics = carried_out(asking.topics)
    views = carried_out(asking.views)

    def topic(self, name: str) -> RemoteTopic:
        return RemoteTopic(self, name)

    def view(self, name: str) -> RemoteView:
        return RemoteView(self, name)

    def queue(self, name: str) -> RemoteQueue:
        return RemoteQueue(self, name)

    def consumer(
        self,
        group: str,
        topic: str,
        *,
        member: str | None = None,
        session_s: float = SESSION_S,
        start: Literal["start", "end"] = "start",
    ) -> RemoteConsumer:
        """A member of a group: `with client.consumer("billing", "orders") as consumer:`."""
        return RemoteConsumer(self, Membership(group, topic, member=member, session_s=session_s, start=start))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def carry_out(self, steps: Steps[T]) -> T:
        answer: Answer | Lost | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            if isinstance(step, Rest):
                time.sleep(step.seconds)
                answer = None
            else:
                answer = self._send(step)

    def _send(self, call: Call) -> Answer | Lost:
        import httpx2

        try:
            patience_s = self._timeout_s + call.wait_s
            found = self._http.request(**call.request(), content=call.content, timeout=patience_s)
        except httpx2.TransportError as error:
            return Lost(self._about, words_of(error))
        return Answer(found.status_code, found.headers, found.content)

    def follow(self, following: Following) -> Iterator[FeedEvent]:
        import httpx2

        while True:
            call = following.call()
            try:
                with self._http.stream(**call.request(), timeout=QUIET_S) as found:
                    if found.status_code != 200:
                        rest_s = following.refused(Answer(found.status_code, found.headers, found.read()))
                    else:
                        for data in found.iter_bytes():
                            yield from following.read(data)
                        rest_s = following.lost("the server ended it")
            except httpx2.TransportError as error:
                rest_s = following.lost(words_of(error))
            time.sleep(rest_s)

"""Following: topics and views by server-sent events that resume; and the first rows of a view, live, for a page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool

from headwater.errors import BadCursor, BadPosition, Compacted, Missed
from headwater.log.position import AppendNumber, Position
from headwater.log.protocol import Log, Snapshot
from headwater.log.topic import Topic
from headwater.serve.feed import Changes, Cursor, Feed, Gap, OtherColumns
from headwater.serve.http.answers import as_json
from headwater.serve.http.channels import PING, PING_S, RETRY_MS, Channel, Piece, event
from headwater.serve.http.permissions import needs
from headwater.serve.http.served import Served
from headwater.serve.http.stream import CONTENT, EventStream
from headwater.serve.http.topics import place_of
from headwater.serve.view import View

LIVE_S = 0.2
ORIGIN = "origin"
"""A position before everything, where an id must not be empty."""
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=10_000)]


def feed_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["feeds"])
    shown: dict[str, Shown] = {}

    @router.get("/topics/{topic}/follow", dependencies=[needs("read", "topic")], responses=CONTENT)
    async def follow_topic(
        topic: str,
        start: Annotated[str, Query(max_length=10_000)] = "end",
        last_event_id: LastEventId = None,
    ) -> EventStream:
        """Records as they come: events `records`, each with the id to resume from, and `gap` where some are gone."""
        source = served.readable(topic)
        if last_event_id is not None:
            here = _position(last_event_id)
        else:
            here = await run_in_threadpool(place_of, source, start)
        rows = served.limits.live_rows
        channel = served.channels.get(
            ("topic", topic), lambda: Channel(TopicRecords(served.log, source, rows), served.pulse)
        )
        return EventStream(channel.follow(str(here) or ORIGIN), served.connections)

    @router.get("/views/{view}/changes", dependencies=[needs("read", "view")], responses=CONTENT)
    async def follow_view(view: str, last_event_id: LastEventId = None) -> EventStream:
        """All rows (`state`), then whatever changes (`changes`, rows with `_weight`), with ids to resume from.

        Whoever adds up the weights has the view. If what has changed since an id is not known any more, `gap` says so,
        and `state` follows; so it does after `version`, which says the columns of a new version if they are others.
        """
        asked = served.view(view)
        place = str(Cursor.parse(last_event_id)) if last_event_id is not None else None
        channel = served.channels.get(("view", view), lambda: Channel(ViewChanges(asked.feed()), served.pulse))
        return EventStream(channel.follow(place), served.connections)

    @router.get("/views/{view}/live", dependencies=[needs("read", "view")], responses=CONTENT)
    async def live(view: str) -> EventStream:
        """The first rows of the view, again whenever it changed: for pages that show what is, not what happened."""
        asked = served.view(view)
        if view not in shown:
            shown[view] = Shown(asked, served.limits.live_rows)
        return EventStream(shown[view].follow(), served.connections)

    return router


class TopicRecords:
    """A topic as a source: places are positions."""

    def __init__(self, log: Log, topic: Topic, rows: int) -> None:
        self._log = log
        self._topic = topic
        self._rows = rows

    def start(self) -> Sequence[Piece]:
        return [event("begin", str(self._topic.end()) or ORIGIN, "{}")]

    def since(self, place: str) -> Sequence[Piece]:
        here = _position(place)
        name = self._topic.name
        try:
            newest = self._log.snapshot([name]).position
            if not newest.covers(here):
                raise BadPosition(text=place, why=f"it is beyond the end, {newest}: the log was restored")
            after = Snapshot(AppendNumber(0), here)
            step = self._log.snapshot([name], after=after, max_rows=self._rows).position
            if step == here:
                return []
            records = self._topic.read(here, step)
        except (Missed, Compacted, BadPosition) as error:
            start = str(self._topic.start())
            told = {"why": str(error), "from": str(here), "to": start}
            return [event("gap", start or ORIGIN, as_json(told))]
        told = {"position": str(step), "records": records.to_pylist()}
        return [event("records", str(step) or ORIGIN, as_json(told))]


class ViewChanges:
    """A view's feed as a source: places are its cursors."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def start(self) -> Sequence[Piece]:
        return [_told("state", self._feed.start())]

    def since(self, place: str) -> Sequence[Piece]:
        cursor = Cursor.parse(place)
        try:
            found = self._feed.since(cursor)
        except BadCursor as error:  # of another view: what has changed since then cannot be told
            found = Gap(cursor, str(error))
        if found is None:
            return []
        if isinstance(found, Gap):
            return [_anew("gap", {"why": found.why}, self._feed.start())]
        if isinstance(found, OtherColumns):
            columns = {field.name: str(field.type) for field in found.columns}
            return [_anew("version", {"version": found.version, "columns": columns}, found.state)]
        return [_told("changes", found)]


class Shown:
    """The first rows of a view, read once for all pages that show them. For one event loop."""

    def __init__(self, view: View, rows: int) -> None:
        self._view = view
        self._rows = rows
        self._seen: tuple[object, str] | None = None
        """The store that was read, which is another one for each version, and what it covered."""
        self._text = ""
        self._look: asyncio.Task[None] | None = None

    async def follow(self) -> AsyncIterator[str]:
        yield f"retry: {RETRY_MS}\n\n"
        shown: tuple[object, str] | None = None
        quiet_s = 0.0
        while True:
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._refresh())
            await asyncio.wait([self._look])
            self._look.result()
            quiet_s += LIVE_S
            if self._seen != shown:
                shown, quiet_s = self._seen, 0.0
                yield self._text
            elif quiet_s > PING_S:
                quiet_s = 0.0
                yield PING

    async def _refresh(self) -> None:
        if self._seen is not None:
            await asyncio.sleep(LIVE_S)
        store = self._view.store
        mark = await run_in_threadpool(store.mark)
        if (store, str(mark.covers)) != self._seen:
            table, mark = await run_in_threadpool(store.read, limit=self._rows)
            position = str(mark.covers)
            self._seen = (store, position)
            self._text = event("rows", position, as_json({"position": position, "rows": table.to_pylist()})).text


def _told(kind: str, told: Changes) -> Piece:
    return event(kind, str(told.cursor), as_json({"position": str(told.at), "rows": told.rows.to_pylist()}))


def _anew(kind: str, told: dict[str, Any], state: Changes) -> Piece:
    """Two events, of which only the state has an id: whoever is cut off between them comes back for both."""
    follows = _told("state", state)
    return Piece(follows.id, f"event: {kind}\ndata: {as_json(told)}\n\n{follows.text}")


def _position(place: str) -> Position:
    return Position() if place == ORIGIN else Position.parse(place)

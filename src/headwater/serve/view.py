"""A view in the user's hand: its rows now or as they were, one row, what they cover, waiting for one's own writes.

Readers follow the view from version to version: when another one has become current, they answer from its store as soon
as that covers all that the old one did. So what was read once is never missing from a later answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from headwater.errors import NotAnInput, NotCovered, UsageError
from headwater.log.coverage import Made, all_inputs, reach
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.serve.condition import Where
from headwater.serve.feed import Feed, Lookup
from headwater.serve.freshness import Freshness, freshness
from headwater.serve.past import present, rows_at
from headwater.serve.question import OrderBy, Question, answered, question
from headwater.serve.store import Mark, Store
from headwater.serve.stores.destinations import Destination, Search, To, destination
from headwater.serve.stores.search import SearchStore
from headwater.serve.travel import state_as_of

POLL_S = 0.01
RECHECK_S = 0.1
"""So often is looked again though the store has not changed: a view below may have read what changed nothing."""
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class ViewSpec:
    name: str
    sql: str
    schema: pa.Schema
    key: tuple[str, ...]
    inputs: tuple[str, ...]


class AnsweringStore(Store, Protocol):
    """A store that finds rows by itself."""

    schema: pa.Schema

    def read(self, *, limit: int | None = None, asked: Question | None = None) -> tuple[pa.Table, Mark]: ...


@dataclass(frozen=True)
class Source:
    """Where a view's versions are found: the log, who makes what in it, and the store of each version."""

    log: Log
    lookup: Lookup
    open: Callable[[Made], Any]
    """Gives an `AnsweringStore`."""


@dataclass(frozen=True)
class _Answering:
    store: AnsweringStore
    made: Made | None
    """The version whose store it is; None: nothing of it is recorded."""


class View:
    """Without a `source` it answers from one store and knows nothing of versions and of the past."""

    def __init__(self, spec: ViewSpec, open_store: Callable[..., Any], source: Source | None = None) -> None:
        self.spec = spec
        self._open_store = open_store
        self._source = source
        self._answering: _Answering | None = None
        self._arriving: _Answering | None = None
        self._moving = threading.Lock()
        self.destinations: list[Destination] = []

    @property
    def name(self) -> str:
        return self.spec.name

    # --- which version answers ---

    @property
    def store(self) -> AnsweringStore:
        return self._now().store

    @property
    def schema(self) -> pa.Schema:
        """Of the rows that are answered: those of a version that another code has built may have other columns."""
        return self.store.schema

    def _now(self) -> _Answering:
        current = self._source.lookup.current(self.name) if self._source is not None else None
        now = self._answering
        if now is None or (current is not None and current != now.made):
            with self._moving:
                now = self._answering = self._moved(self._answering, current)
        return now

    def _moved(self, now: _Answering | None, current: Made | None) -> _Answering:
        if now is None:
            return _Answering(self._open_store(), current)
        if self._source is None or current is None or current == now.made:
            return now
        if now.made is None:  # it was built meanwhile, maybe by another code
            now.store.close()
            return _Answering(self._source.open(current), current)
        if now.made.version == current.version:
            return _Answering(now.store, current)
        if self._arriving is None or self._arriving.made != current:
            self._arriving = _Answering(self._source.open(current), current)
        arriving = self._arriving
        dropped = self._source.lookup.version(self.name, now.made.version) is None
        if not dropped and not self._reach(arriving).covers(self._reach(now).only(self._reads(arriving))):
            return now
        now.store.close()
        return arriving

    def serve_from(self, store: AnsweringStore) -> None:
        """Answer from this store from now on: that of the version which runs, or has just become current."""
        with self._moving:
            self.close()
            made = self._source.lookup.current(self.name) if self._source is not None else None
            self._answering, self._arriving = _Answering(store, made), None

    # --- what it covers ---

    @property
    def position(self) -> Position:
        """How far what `read` and `get` answer covers the view's inputs and, if these are views, theirs."""
        return self._reach(self._now())

    @property
    def freshness(self) -> Freshness:
        """How old the answer is: see `Freshness`."""
        source, now = self._sourced(), self._now()
        covers = self._reach(now)
        given = [topic for topic in self._reads(now) if source.lookup.made_by(topic) is None]
        return freshness(source.log, given, covers)

    def covers(self, asked: Position) -> bool:
        """Whether the rows reflect that position. Topics the view does not read are left aside, if it reads some."""
        now = self._now()
        return self._reach(now).covers(asked.only(self._refuse_others(asked.topics, now)))

    def refuse_others(self, topics: Sequence[str]) -> None:
        """`NotAnInput` if it reads none of these topics: a position in them says nothing about it."""
        self._refuse_others(topics, self._now())

    def _refuse_others(self, topics: Sequence[str], now: _Answering) -> tuple[str, ...]:
        reads = self._reads(now)
        if topics and not set(topics) & set(reads):
            raise NotAnInput(view=self.name, asked=topics, reads=reads)
        return reads

    def wait(self, asked: Position, *, timeout_s: float = TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            store = self.store
            version = store.version()  # asked first: no change after it is overlooked
            if self.covers(asked):
                return
            if time.monotonic() >= deadline:
                raise self.not_covered(asked, timeout_s)
            until = min(deadline, time.monotonic() + RECHECK_S)
            while store.version() == version and time.monotonic() < until:
                time.sleep(POLL_S)

    def not_covered(self, asked: Position, timeout_s: float) -> NotCovered:
        return NotCovered(view=self.name, asked=str(asked), covers=str(self.position), timeout_s=timeout_s)

    def _reach(self, answering: _Answering) -> Position:
        covers = answering.store.mark().covers
        if self._source is None:
            return covers
        return reach(self._source.log, self._source.lookup.made_by, self._inputs(answering), covers)

    def _reads(self, answering: _Answering) -> tuple[str, ...]:
        inputs = self._inputs(answering)
        return all_inputs(self._source.lookup.made_by, inputs) if self._source is not None else inputs

    def _inputs(self, answering: _Answering) -> tuple[str, ...]:
        return answering.made.inputs if answering.made is not None and answering.made.inputs else self.spec.inputs

    # --- reading ---

    def read(
        self,
        *,
        where: Where | None = None,
        order_by: OrderBy | None = None,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        after: Position | None = None,
        as_of: Position | datetime | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> pa.Table:
        """The rows; with `after`, as soon as they cover that position, such as one's own append.

        `where` is a dict ({"page": "/a", "n": {">=": 5}}) or a condition in SQL; `order_by` names columns ("n DESC,
        page"). `as_of` asks for the past: the rows that the view showed at a time, or the first to cover a position.
        """
        if after is not None and as_of is not None:
            raise UsageError(what="after and as_of contradict each other", do="Give one of them")
        if after is not None:
            self.wait(after, timeout_s=timeout_s)
        if as_of is None:
            return self.answer(where=where, order_by=order_by, limit=limit, columns=columns)[0]
        now = self._now()
        asked = self._question(now, where=where, order_by=order_by, limit=limit, columns=columns)
        source = self._sourced()
        if now.made is None:
            raise UsageError(what=f"view {self.name!r} was never built", do="Run the app, then ask for its past")
        return answered(state_as_of(source.log, source.lookup.made_by, now.made, as_of), asked)

    def answer(self, **asked: Any) -> tuple[pa.Table, Mark]:
        """The rows as `read` gives them now, and what they cover; `where`, `order_by`, `limit` and `columns`."""
        now = self._now()
        return now.store.read(asked=self._question(now, **asked))

    def _question(self, now: _Answering, **asked: Any) -> Question:
        """To the version that answers, which may have other columns than the code at hand."""
        schema = now.store.schema
        return question(schema, [name for name in self.spec.key if name in schema.names], **asked)

    def get(self, key: Any, *, after: Position | None = None, timeout_s: float = TIMEOUT_S) -> dict[str, Any] | None:
        """The row of a key (a value, or one value a key column), or None."""
        if after is not None:
            self.wait(after, timeout_s=timeout_s)
        return self.store.get(_as_tuple(key))[0]

    def get_at_once(self, key: Sequence[Any]) -> tuple[dict[str, Any] | None, Mark] | None:
        """The row and what it stands for, for who must not wait; None while the view goes to another version."""
        current = self._source.lookup.current(self.name) if self._source is not None else None
        now = self._answering
        if now is None or (current is not None and current != now.made):
            return None
        return now.store.get(key)

    def rows_at(self, made: Made, end: Position) -> pa.Table | None:
        """The rows that a version's topic has up to a position; None if they are not known any more."""
        now = self._now()
        if now.made == made and now.store.mark().position == end:
            rows, mark = now.store.read()
            if mark.position == end:
                return rows
        found = rows_at(self._sourced().log, made.topic, end)
        return present(found) if found is not None else None

    def feed(self) -> Feed:
        """The changes of the view, to be followed from a cursor on."""
        source = self._sourced()
        return Feed(source.log, source.lookup, self.name, self.spec.schema)

    def _sourced(self) -> Source:
        if self._source is None:
            raise UsageError(what=f"view {self.name!r} was opened without its log", do="Use app.views[...]")
        return self._source

    def serve(self, *, to: To | Sequence[To]) -> View:
        """While the app runs, keep these stores in step with the view too, each at its own pace. See docs/stores.md."""
        for each in map(destination, [to] if isinstance(to, To) else to):
            if each.name in [known.name for known in self.destinations]:
                raise UsageError(what=f"view {self.name!r} is served to {each.name} twice", do="Leave one out")
            self.destinations.append(each)
        return self

    def search(self, query: str, *, limit: int = 20) -> pa.Table:
        """The rows whose text matches best, from the full-text index that the view is served to (`to="search:"`)."""
        found = next((each for each in self.destinations if isinstance(each, Search)), None)
        if found is None:
            raise UsageError(what=f"view {self.name!r} has no full-text index", do='Say view.serve(to="search:")')
        index: SearchStore = self._open_store(found)
        try:
            return index.search(query, limit=limit)[0]
        finally:
            index.close()

    def close(self) -> None:
        if self._answering is not None:
            self._answering.store.close()


def _as_tuple(key: Any) -> Sequence[Any]:
    return key if isinstance(key, tuple | list) else (key,)

"""A view in the user's hand: its current rows, one row, what they cover, and waiting for one's own writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.errors import NotAnInput, NotCovered, UsageError
from headwater.log.position import Position
from headwater.serve.store import Store
from headwater.serve.stores.destinations import Destination, Search, To, destination
from headwater.serve.stores.search import SearchStore

POLL_S = 0.01
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class ViewSpec:
    name: str
    sql: str
    schema: pa.Schema
    key: tuple[str, ...]
    inputs: tuple[str, ...]


class View:
    def __init__(self, spec: ViewSpec, open_store: Callable[..., Any]) -> None:
        self.spec = spec
        self._open_store = open_store
        self._store: Store | None = None
        self.destinations: list[Destination] = []

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def serve_from(self, store: Store) -> None:
        """Answer from this store from now on: that of the version which runs, or has just become current."""
        self.close()
        self._store = store

    @property
    def position(self) -> Position:
        """How far the view's inputs are covered by what `read` and `get` answer."""
        return self.store.mark().covers

    def read(
        self, *, after: Position | None = None, timeout_s: float = TIMEOUT_S, limit: int | None = None
    ) -> pa.Table:
        """The current rows; with `after`, as soon as they cover that position, such as one's own append."""
        if after is not None:
            self.wait(after, timeout_s=timeout_s)
        return self.store.read(limit=limit)[0]

    def get(self, key: Any, *, after: Position | None = None, timeout_s: float = TIMEOUT_S) -> dict[str, Any] | None:
        """The row of a key (a value, or one value a key column), or None."""
        if after is not None:
            self.wait(after, timeout_s=timeout_s)
        return self.store.get(_as_tuple(key))[0]

    def covers(self, asked: Position) -> bool:
        """Whether the rows reflect that position. Topics the view does not read are left aside, if it reads some."""
        wanted = asked.only(self.spec.inputs)
        if asked.topics and not wanted.topics:
            raise NotAnInput(view=self.name, asked=asked.topics, reads=self.spec.inputs)
        return self.position.covers(wanted)

    def wait(self, asked: Position, *, timeout_s: float = TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.covers(asked):
            if time.monotonic() >= deadline:
                raise self.not_covered(asked, timeout_s)
            time.sleep(POLL_S)

    def not_covered(self, asked: Position, timeout_s: float) -> NotCovered:
        return NotCovered(view=self.name, asked=str(asked), covers=str(self.position), timeout_s=timeout_s)

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
        if self._store is not None:
            self._store.close()


def _as_tuple(key: Any) -> Sequence[Any]:
    return key if isinstance(key, tuple | list) else (key,)

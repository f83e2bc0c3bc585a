"""What an app does over several topics or views at once: one append to all of them, one moment of all of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.errors import TopicNotFound, UsageError, ViewNotFound
from headwater.log import Log, Position, Producer, Topic
from headwater.process.lookup import VersionLookup
from headwater.records import Rows
from headwater.running import Running
from headwater.serve.view import TIMEOUT_S, Source, View

if TYPE_CHECKING:
    from headwater.log.coverage import Made
    from headwater.serve.snapshot import Moment
    from headwater.serve.store import Target


class Together:
    """The part of an `App` that is about several of its topics and views."""

    log: Log
    _running: Running
    _topics: dict[str, Topic]

    def append(
        self,
        to: str | Mapping[str, Rows],
        rows: Rows | None = None,
        *,
        wait_for: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> Position:
        """Append rows to a topic, or to several ({topic: rows}) in one append: all are there, or none.

        With `wait_for`, returns once all these views reflect it, in this process and in others: whoever reads them from
        then on sees it. `NotCovered` if that takes longer; the append itself is then safe all the same.
        """
        if isinstance(to, str) == (rows is None):
            raise UsageError(what="append takes a topic and rows, or one dict", do="Say append({'clicks': [...]})")
        given = to if rows is None and not isinstance(to, str) else {str(to): rows or []}
        views = [self._view(name) for name in wait_for]
        for view in views:  # before anything is appended
            view.refuse_others(list(given))
        parts = [part for name, some in given.items() for part in self._topic(name).parts(some)]
        appended = self.log.append(parts, producer=producer, sequence=sequence)
        deadline = time.monotonic() + timeout_s
        for view in views:
            view.wait(appended.position, timeout_s=max(0.0, deadline - time.monotonic()))
        return appended.position

    def snapshot(self, views: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> Moment:
        """The rows of several views as of one and the same moment of the log, which comes after all that was appended
        before the call. The app has to run, here or elsewhere, unless all is processed; else `CutNotReached`."""
        from headwater.serve.snapshot import snapshot

        named = [self._view(name) for name in dict.fromkeys([views] if isinstance(views, str) else views)]
        return snapshot(self.log, self._served_from.lookup, named, timeout_s=timeout_s)

    @cached_property
    def _served_from(self) -> Source:
        """Where views find their versions."""
        running = self._running

        def opened(made: Made) -> Target:
            versions = running.versions.of(made.name)
            return running.open_version(next(each for each in versions if each.version == made.version))

        def declared() -> dict[str, tuple[str, ...]]:
            return {name: each.lane.inputs for name, each in running.derived.items()}

        return Source(self.log, VersionLookup(self.log, running.folder, declared=declared), opened)

    def _view(self, name: str) -> View:
        if name not in self._running.views:
            raise ViewNotFound(view=name, known=self._running.views)
        return self._running.views[name]

    def _topic(self, name: str) -> Topic:
        if name not in self._topics:
            raise TopicNotFound(topic=name, known=self._topics)
        return self._topics[name]

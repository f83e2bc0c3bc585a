"""A view and all its stores while an app runs: each follows at its own pace, in a thread of its own.

The store that the view answers from is the app's own: if that breaks, the run ends. Others are somebody else's: one
that fails is tried again, its failure and lag are shown, and nobody waits for it. Upkeep leaves what any of them has
yet to apply, but not for ever: one that is more than its `hold_rows` behind is let go, and filled anew when it is back.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import Compacted, HeadwaterError, Missed, StoreFailed, StoreTaken
from headwater.log.position import Position
from headwater.log.protocol import Log
from headwater.serve.astray import begin
from headwater.serve.follower import WAKE_S, Follower, at_end
from headwater.serve.store import NOTHING, Mark, Served, Target
from headwater.serve.stores.destinations import Destination
from headwater.serve.view import View

AGAIN_S = (0.2, 1.0, 5.0, 15.0, 60.0)
"""How long after a failure it is tried again; about."""
STOP_S = 15.0
"""How long an apply under way is waited for at the end; the next run then goes on from the mark, as after a crash."""


@dataclass(frozen=True)
class StoreStatus:
    view: str
    store: str
    lag: int | None
    """Records of the view's topic that are not applied yet; unknown while the store has not answered."""
    behind_s: float
    """How long ago it was last known to be up to date: its rows are not staler than that."""
    failure: str = ""
    alert: str = ""

    @property
    def name(self) -> str:
        return f"{self.view} -> {self.store}"


class Serving:
    """One view's version into one store, for as long as it takes."""

    def __init__(self, log: Log, topic: str, producer: str, to: Destination, served: Served) -> None:
        self.to = to
        self._log = log
        self._topic = topic
        self._producer = producer
        self._served = served
        self._mark: Mark | None = None
        self._first = log.snapshot([topic]).position
        self._fresh_at = time.monotonic()
        self._failure: HeadwaterError | None = None
        self._trouble = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"serve {topic} to {to.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        self.ask_to_stop()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    @property
    def mark(self) -> Mark | None:
        """As last known: it is not asked, for it may not answer."""
        return self._mark

    def lag(self) -> int:
        """At least so many records."""
        known = self._mark.position if self._mark is not None else self._first
        return max(0, self._log.snapshot([self._topic]).position.total - known.total)

    @property
    def held(self) -> bool:
        """Whether the log keeps for it what it has yet to apply."""
        return self.lag() <= self.to.hold_rows

    def settled(self) -> bool:
        """It has all there is, or cannot take it now."""
        if self._failure is not None or not self._thread.is_alive():
            return True
        covered = self._log.covered(self._producer)
        return self._mark is not None and (covered is None or self._mark.number >= covered.number)

    def status(self) -> StoreStatus:
        lag = self.lag()
        fresh = lag == 0 and self._mark is not None and self._failure is None
        alert = "" if self.held else f"more than {self.to.hold_rows} records behind: it will be filled anew"
        return StoreStatus(
            self._served.view,
            self.to.name,
            lag if self._mark is not None else None,
            0.0 if fresh else time.monotonic() - self._fresh_at,
            str(self._failure) if self._failure is not None else self._trouble,
            alert,
        )

    def _run(self) -> None:
        tries = 0
        while not self._stop.is_set():
            before = self._mark
            try:
                self._follow_once()
            except StoreTaken as taken:
                self._failure = taken
                return
            except HeadwaterError as error:
                self._failure = error
            except Exception as error:  # noqa: BLE001 a store never ends the app
                self._failure = StoreFailed(store=self.to.name, why=type(error).__name__)
                self._failure.__cause__ = error
            tries = 0 if self._mark != before else tries
            self._stop.wait(AGAIN_S[min(tries, len(AGAIN_S) - 1)] * random.uniform(0.8, 1.2))
            tries += 1

    def _follow_once(self) -> None:
        """Until stopped, or something fails."""
        target = self.to.open(self._served)
        try:
            following = Follower(self._log, self._topic, self._producer, target)
            mark = self._begin(target)
            seen = mark.number
            while not self._stop.is_set():
                further: Mark | None = mark
                while not self._stop.is_set() and further is not None:
                    self._mark = mark = further
                    further = self._step(following, target, mark)
                    self._failure = None
                    if further is not None:
                        self._stop.wait(self.to.pace_s)
                self._fresh_at = time.monotonic()
                self._trouble = str(getattr(target, "trouble", str)())
                seen = self._log.wait(seen, WAKE_S)
        finally:
            target.close()

    def _step(self, following: Follower, target: Target, mark: Mark) -> Mark | None:
        try:
            return following.step(mark)
        except (Compacted, Missed):  # upkeep did not wait for it any more
            target.clear()
            return self._begin(target)

    def _begin(self, target: Target) -> Mark:
        """Where it goes on; one that only wants to know what changes begins at the end."""
        mark = begin(self._log, self._topic, self._producer, target)
        end = at_end(self._log, self._topic, self._producer) if self.to.from_end and mark == NOTHING else None
        if end is None:
            return mark
        target.apply(self._log.topic(self._topic).stored.empty_table(), end, after=mark)
        return end


class ServedView:
    """The view's own store, and the others."""

    def __init__(self, log: Log, topic: str, own: Follower, others: Sequence[Serving]) -> None:
        self._log = log
        self._topic = topic
        self._own = own
        self._others = others

    def start(self) -> None:
        self._own.start()
        for each in self._others:
            each.start()

    def stop(self) -> None:
        for each in self._others:
            each.ask_to_stop()
        self._own.stop()
        for each in self._others:
            each.stop()

    @property
    def failure(self) -> HeadwaterError | None:
        return self._own.failure

    def settled(self) -> bool:
        return all(each.settled() for each in self._others)

    def statuses(self) -> list[StoreStatus]:
        return [each.status() for each in self._others]

    def pin(self) -> None:
        """Keep upkeep from what any of the stores has yet to apply."""
        held = [each.mark or NOTHING for each in self._others if each.held]
        positions = [self._own.mark().position, *(mark.position for mark in held)]
        offsets = {
            partition: min(position.offset(self._topic, partition) for position in positions)
            for partition in range(self._log.topic(self._topic).partitions)
        }
        self._log.pin(f"store of {self._topic}", Position.of({self._topic: offsets}), topics=[self._topic])


def served_view(log: Log, topic: str, producer: str, view: View, served: Served) -> ServedView:
    """The store that the view answers from, and those that it is served to beside."""
    others = [Serving(log, topic, producer, to, served) for to in view.destinations]
    return ServedView(log, topic, Follower(log, topic, producer, view.store), others)

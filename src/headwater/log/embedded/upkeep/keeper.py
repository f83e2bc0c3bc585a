"""All upkeep of a log in the user's hand: one act at a time, or what the topics' settings ask for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.log.embedded.checking import Advance, Tally
from headwater.log.embedded.upkeep.archive import archive
from headwater.log.embedded.upkeep.compaction import compact
from headwater.log.embedded.upkeep.deletion import delete_for_good
from headwater.log.embedded.upkeep.excision import Condition, Forgotten, count, forget
from headwater.log.embedded.upkeep.garbage import GRACE_S, collect
from headwater.log.embedded.upkeep.keys import forget_keys
from headwater.log.embedded.upkeep.retention import retain
from headwater.log.embedded.upkeep.rollup import LEAST_CHUNKS, roll_up

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog
    from headwater.log.embedded.rows import KnownTopic


KEYS_EVERY_US = 3_600_000_000


@dataclass(frozen=True)
class Kept:
    """What a round of upkeep did."""

    rolled_up: int
    trimmed: Mapping[str, Mapping[int, int]]
    compacted: Mapping[str, Mapping[int, int]]
    files_removed: int
    keys_forgotten: int


class Keeper:
    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._keys_done_at: int | None = None

    def _topic(self, name: str) -> KnownTopic:
        self._log.topic(name)  # as it is now: settings and schema may have been changed elsewhere
        return self._log.known(name)

    def roll_up(self, topic: str, *, least_chunks: int = LEAST_CHUNKS) -> int:
        return roll_up(self._log, self._topic(topic), least_chunks=least_chunks)

    def retain(self, topic: str) -> Mapping[int, int]:
        return retain(self._log, self._topic(topic))

    def compact(self, topic: str) -> Mapping[int, int]:
        return compact(self._log, self._topic(topic))

    def archive(self, topic: str, url: str, *, older_than_s: float = 0) -> int:
        return archive(self._log, self._topic(topic), url, older_than_s=older_than_s)

    def forget(
        self,
        topic: str,
        *,
        keys: Sequence[Mapping[str, Any]] = (),
        condition: Condition | None = None,
        advance: Advance | None = None,
    ) -> Forgotten:
        return forget(self._log, self._topic(topic), keys=keys, condition=condition, advance=advance)

    def count(self, topic: str, *, keys: Sequence[Mapping[str, Any]]) -> int:
        """How many records `forget` would remove."""
        return count(self._log, self._topic(topic), keys)

    def delete_for_good(self, topics: Collection[str]) -> list[str]:
        return delete_for_good(self._log, topics)

    def forget_keys(self) -> int:
        """Those of appends that are older than their topic's `keys_s`."""
        return forget_keys(self._log)

    def collect_garbage(self, *, grace_s: float = GRACE_S) -> int:
        return collect(self._log, grace_s=grace_s)

    def run(self, *, advance: Advance | None = None) -> Kept:
        """One round over all topics: retention, compaction of tables, rolling up; then garbage and old keys."""
        rolled, trimmed, compacted = 0, {}, {}
        sizes = self._sizes()
        tally = Tally(sum(sizes.values()), advance)
        for spec in self._log.topics():
            if moved := self.retain(spec.name):
                trimmed[spec.name] = moved
            if horizons := self.compact(spec.name):
                compacted[spec.name] = horizons
            rolled += self.roll_up(spec.name)
            tally.advance(sizes.get(spec.name, 0))
        return Kept(rolled, trimmed, compacted, self.collect_garbage(), self._forget_keys_when_due())

    def _forget_keys_when_due(self) -> int:
        """To find out costs a look at each key, so it is done in the first round, and then once an hour."""
        now = self._log.clock()
        if self._keys_done_at is not None and now - self._keys_done_at < KEYS_EVERY_US:
            return 0
        self._keys_done_at = now
        return self.forget_keys()

    def _sizes(self) -> dict[str, int]:
        with self._log.catalog.read() as catalog:
            rows: list[Any] = catalog.execute(
                "SELECT t.name, sum(c.size) FROM topics t JOIN chunks c ON c.topic = t.id GROUP BY t.id"
            ).fetchall()
        return dict(rows)

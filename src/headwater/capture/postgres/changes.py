"""Messages of logical decoding become parts of topics, a run of messages at a time.

Runs are cut where something else than rows must happen in its place: a relation that is not as it was, a TRUNCATE.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.capture.appender import Appender
from headwater.capture.compiled import UNCHANGED, Bytes, Ints, Lengths
from headwater.capture.current import removals
from headwater.capture.outbox import Outbox
from headwater.capture.postgres.frames import find_fields, find_rows, int32_at
from headwater.capture.postgres.messages import Messages
from headwater.capture.postgres.overlap import Overlap, not_shown
from headwater.capture.postgres.rows import batch_of
from headwater.capture.postgres.tables import Relation, Table, read_relation
from headwater.capture.postgres.toast import Run, Toast
from headwater.errors import SourceLost
from headwater.log.protocol import Part
from headwater.log.spec import TopicSpec

BEGIN, COMMIT, RELATION, TRUNCATE, MESSAGE, INSERT = (ord(letter) for letter in "BCRTMI")

RECENT = 1000


@dataclass(frozen=True)
class Found:
    """Messages in a buffer."""

    data: Bytes
    kinds: Bytes
    starts: Ints
    ends: Ints

    def body(self, number: int) -> bytes:
        return bytes(self.data[self.starts[number] : self.ends[number]])


@dataclass
class Known:
    """A table as the stream has described it last, and its topic."""

    table: Table
    spec: TopicSpec
    overlaps: list[Overlap] = field(default_factory=list)


class Changes:
    """Gathers the parts of what is to be one append. `learn` says what a relation is, or None if it is not captured."""

    def __init__(
        self,
        appender: Appender,
        learn: Callable[[Relation, Ints], Known | None],
        messages: Messages,
        outbox: Outbox | None = None,
    ) -> None:
        self._outbox = outbox
        self._appender = appender
        self._learn = learn
        self.messages = messages
        self._toast = Toast(appender.log)
        self._relations: dict[int, Known | None] = {}
        self._told: dict[int, bytes] = {}
        self._transaction = 0
        self.recent: deque[int] = deque(maxlen=RECENT)
        """The ids of the last transactions."""
        self.parts: list[Part] = []
        self.rows = 0

    def take(self, found: Found, first: int, last: int) -> None:
        """Stage what messages first <= n < last tell."""
        kinds = found.kinds[first:last]
        cuts = first + np.flatnonzero((kinds == RELATION) | (kinds == TRUNCATE) | (kinds == MESSAGE))
        begin = first
        for cut in cuts.tolist():
            kind = int(found.kinds[cut])
            if kind == RELATION and self._told.get(int32_at(found.data, int(found.starts[cut]) + 1)) == found.body(cut):
                continue
            self._run(found, begin, cut)
            begin = cut + 1
            if kind == RELATION:
                self._relation(found.body(cut), self._transactions(found, np.array([cut])))
            elif kind == TRUNCATE:
                self._truncate(found.body(cut), self._transactions(found, np.array([cut])))
            else:
                self.parts += self.messages.take(found.body(cut))
        self._run(found, begin, last)
        begins = first + np.flatnonzero(kinds == BEGIN)
        if len(begins):
            self._transaction = _transaction_id(found, int(begins[-1]))
            self.recent.extend(_transaction_id(found, int(each)) for each in begins[-RECENT:])

    def give(self) -> list[Part]:
        """All parts since the last time."""
        parts, self.parts, self.rows = self.parts, [], 0
        return parts

    def forget(self) -> None:
        """The connection is new: relations are described anew, parts of a transaction that did not end come again."""
        self._relations.clear()
        self._told.clear()
        if self._outbox is not None:
            self._outbox.forget()
        self.give()

    # --- what messages do ---

    def _relation(self, body: bytes, transaction: Ints) -> None:
        relation = read_relation(body)
        self._relations[relation.oid] = self._learn(relation, transaction)
        self._told[relation.oid] = body

    def _truncate(self, body: bytes, transaction: Ints) -> None:
        """What the transaction did to the table before has no effect; what the topic holds is taken away.

        Only its own parts are gathered then: whoever calls `take` appends earlier transactions first.
        """
        count = int.from_bytes(body[1:5], "big")
        for place in range(count):
            known = self._relations.get(int.from_bytes(body[6 + 4 * place : 10 + 4 * place], "big"))
            if known is None:
                continue
            spec, log = known.spec, self._appender.log
            self.parts = [part for part in self.parts if part.topic != spec.name]
            for partition, extent in log.extents(spec.name).items():
                for batch in removals(log, spec, partition, extent.end):
                    ids = np.repeat(transaction, batch.num_rows)
                    left = batch.filter(pa.array(not_shown(known.overlaps, batch.column(spec.key[0]), ids)))
                    self.parts.append(log.stage(spec.name, partition, left, producer=self._appender.producer))

    def _run(self, found: Found, first: int, last: int) -> None:
        if last <= first:
            return
        relations, tuples, signs, messages = find_rows(found.data, found.kinds, found.starts, first, last)
        for relation in np.unique(relations).tolist():
            if relation not in self._relations:
                raise SourceLost(source="the stream", why=f"it tells of relation {relation} without describing it")
            known = self._relations[relation]
            if known is None:
                continue
            mine = relations == relation
            if mine.all():
                self._rows(found, known, tuples, signs, messages)
            else:
                self._rows(found, known, tuples[mine], signs[mine], messages[mine])

    def _rows(self, found: Found, known: Known, tuples: Ints, signs: Lengths, messages: Ints) -> None:
        table, spec = known.table, known.spec
        starts, lengths, unknown = find_fields(found.data, tuples, signs, messages, len(table.columns))
        batch = batch_of(table, spec, found.data, starts, lengths, signs)
        if unknown:
            missing = {column.name: lengths[place] == UNCHANGED for place, column in enumerate(table.columns)}
            run = Run(batch, signs, messages, missing)
            batch = self._toast.repaired(table.name, spec, run, self.parts)
        inserted = found.kinds[messages] == INSERT
        if known.overlaps:
            left = not_shown(known.overlaps, batch.column(spec.key[0]), self._transactions(found, messages))
            batch, inserted = batch.filter(pa.array(left)), inserted[left]
        if self._outbox is not None and table.name == self._outbox.table:
            self.parts += self._outbox.parts(batch.filter(pa.array(inserted)))
        if batch.num_rows:
            self.rows += batch.num_rows
            self.parts += self._appender.stage(spec, batch)

    def _transactions(self, found: Found, messages: Ints) -> Ints:
        """The ids of the transactions that these messages are of."""
        begins = np.flatnonzero(found.kinds == BEGIN)
        ids = np.array([self._transaction, *(_transaction_id(found, int(each)) for each in begins)], np.int64)
        of: Ints = ids[np.searchsorted(begins, messages, side="right")]
        return of


def _transaction_id(found: Found, number: int) -> int:
    return int32_at(found.data, int(found.starts[number]) + 17)

"""The outbox: rows that an application inserts in its own transaction, to be told to others, become records of topics.

Columns are those of Debezium's event router: `id`, `aggregatetype`, `aggregateid`, `type`, `payload`, and what else
there is. A row goes to the stream `outbox.event.<aggregatetype>`, keyed by `aggregateid`, in the order of commits, in
the same append as everything else of its transaction. An id is told once: rows that are read or inserted again are left
out. Updates and deletions of the outbox tell nothing: most applications delete a row as soon as it is inserted.
"""

from __future__ import annotations

import re
import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.appender import Appender
from headwater.errors import BadCapture
from headwater.log.keyhash import Hashes, key_hash
from headwater.log.protocol import Part
from headwater.log.spec import TopicSpec
from headwater.log.topic import Topic

PREFIX = "outbox.event."
REQUIRED = ("id", "aggregatetype", "aggregateid", "type", "payload")


class Outbox:
    """May be told rows by several threads."""

    def __init__(self, appender: Appender, table: str, schema: pa.Schema, *, partitions: int) -> None:
        missing = [name for name in REQUIRED if name not in schema.names]
        if missing:
            raise BadCapture(
                what=f"table {table!r} is no outbox: it has no column {missing[0]!r}",
                do=f"An outbox has the columns {', '.join(REQUIRED)}",
            )
        self.table = table
        self._appender = appender
        self._partitions = partitions
        self._lock = threading.Lock()
        self._told: Hashes | None = None
        self._specs: dict[str, TopicSpec] = {}

    def parts(self, rows: pa.RecordBatch) -> list[Part]:
        """What inserted rows tell, staged."""
        with self._lock:
            new = rows.filter(pa.array(self._new(rows)))
            parts: list[Part] = []
            for kind in pc.unique(new.column("aggregatetype")).to_pylist():
                chosen = new.filter(pc.equal(new.column("aggregatetype"), kind))
                parts += self._appender.stage(self._topic(str(kind), rows.schema), self._records(chosen))
            return parts

    def forget(self) -> None:
        """What was staged is not appended after all: what was told is looked up anew."""
        with self._lock:
            self._told = None

    def _new(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        hashes = key_hash([rows.column("id").cast(pa.string())])
        if self._told is None:
            self._told = self._load()
        first = np.zeros(len(hashes), np.bool_)
        first[np.unique(hashes, return_index=True)[1]] = True
        new = first & ~np.isin(hashes, self._told)
        self._told = np.concatenate([self._told, hashes[new]])
        return new

    def _load(self) -> Hashes:
        """The ids that stand in the log."""
        log = self._appender.log
        found: list[Hashes] = [np.zeros(0, np.uint64)]
        for spec in log.topics():
            if spec.name.startswith(PREFIX) and "id" in spec.schema.names:
                ends = Topic(log, spec).end()
                for partition, extent in log.extents(spec.name).items():
                    end = ends.offset(spec.name, partition)
                    scanned = log.scan(spec.name, partition, extent.start, end, columns=["id"])
                    found += [key_hash([batch.column("id")]) for batch in scanned]
        return np.concatenate(found)

    def _topic(self, kind: str, schema: pa.Schema) -> TopicSpec:
        name = PREFIX + re.sub(r"[^A-Za-z0-9_.\-]", "_", kind)
        columns = pa.schema([(field.name, _kind(field)) for field in schema if _told(field.name)])
        if name not in self._specs or self._specs[name].schema != columns:
            spec = TopicSpec(name, columns, key=("aggregateid",), partitions=self._partitions)
            self._specs[name] = self._appender.log.create(spec)
        return self._specs[name]

    def _records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        fields = [field for field in rows.schema if _told(field.name)]
        columns = [rows.column(field.name).cast(_kind(field)) for field in fields]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([(each.name, _kind(each)) for each in fields]))


def _told(name: str) -> bool:
    return name != "aggregatetype" and not name.startswith("_")


def _kind(field: pa.Field) -> pa.DataType:
    """Ids and keys are text, whatever the table has them as: so different outboxes agree."""
    return pa.string() if field.name in ("id", "aggregateid") else field.type

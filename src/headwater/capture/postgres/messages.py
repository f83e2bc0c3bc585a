"""Logical messages (`pg_logical_emit_message`) become records of `<capture>.messages`, made when one comes."""

from __future__ import annotations

import pyarrow as pa

from headwater.capture.appender import Appender
from headwater.capture.position import lsn_text
from headwater.errors import TopicNotFound
from headwater.log.protocol import Part
from headwater.log.spec import TopicSpec

SCHEMA = pa.schema(
    [("prefix", pa.string()), ("content", pa.binary()), ("lsn", pa.string()), ("transactional", pa.bool_())]
)


class Messages:
    def __init__(self, appender: Appender, capture: str) -> None:
        self._appender = appender
        self._spec = TopicSpec(f"{capture}.messages", SCHEMA, key=("prefix",), partitions=1)
        self._made = False
        self.after = 0
        """Behind the last one."""

    def take(self, body: bytes) -> list[Part]:
        """'M', flags, int64 lsn, prefix, int32 length and content."""
        if not self._made:
            try:
                self._spec = self._appender.log.topic(self._spec.name)
            except TopicNotFound:
                self._spec = self._appender.log.create(self._spec)
            self._made = True
        prefix, _, rest = body[10:].partition(b"\0")
        lsn = int.from_bytes(body[2:10], "big")
        self.after = lsn + 1
        row = {
            "prefix": prefix.decode(),
            "content": rest[4:],
            "lsn": lsn_text(lsn),
            "transactional": bool(body[1] & 1),
        }
        return self._appender.stage(self._spec, pa.RecordBatch.from_pylist([row], SCHEMA))

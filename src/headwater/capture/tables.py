"""The tables of a capture and their topics, whatever database they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from headwater.capture.appender import Appender
from headwater.capture.outbox import Outbox
from headwater.capture.spec import CaptureSpec
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec


class Described(Protocol):
    """A table as its database has described it."""

    @property
    def name(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def arrow(self) -> pa.Schema: ...

    def spec(self, *, partitions: int) -> TopicSpec: ...


def known_topics(log: Log, spec: CaptureSpec) -> dict[str, TopicSpec] | None:
    """The topic of each table, if all are there; None if the database must be asked."""
    known = {topic.name: topic for topic in log.topics()}
    if any("*" in table for table in spec.tables) or not all(topic in known for topic in spec.tables.values()):
        return None
    return {table: known[topic] for table, topic in spec.tables.items()}


def made_topics(log: Log, spec: CaptureSpec, tables: Mapping[str, Described]) -> dict[str, TopicSpec]:
    """A topic that is there keeps what it has; what the table has beyond it comes with the stream."""
    known = {topic.name: topic for topic in log.topics()}
    return {
        name: known.get(table.topic) or log.create(table.spec(partitions=spec.settings.partitions))
        for name, table in tables.items()
    }


def outbox_of(appender: Appender, spec: CaptureSpec, tables: Mapping[str, Described]) -> Outbox | None:
    name, partitions = spec.settings.outbox, spec.settings.partitions
    return None if name is None else Outbox(appender, name, tables[name].arrow, partitions=partitions)

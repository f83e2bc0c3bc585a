"""The catalog's tables, by format. What they mean is in docs/format.md.

A catalog of an older format is upgraded in place when it is opened: the steps from its format to this one, and the new
number, in one transaction. So it has one format or the other, whatever happens. Nobody with an older Headwater may have
it open meanwhile: its process would go on as if nothing had changed. A newer format is left alone.
"""

from __future__ import annotations

import apsw

FORMAT = 2

TABLES = f"""
CREATE TABLE topics(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL, time TEXT, kind TEXT NOT NULL,
  partitions INTEGER NOT NULL, settings TEXT NOT NULL) STRICT;
CREATE TABLE schemas(
  topic INTEGER NOT NULL, version INTEGER NOT NULL, schema BLOB NOT NULL, PRIMARY KEY(topic, version)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE ends(
  topic INTEGER NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL, "end" INTEGER NOT NULL,
  horizon INTEGER NOT NULL, max_time INTEGER, dropped INTEGER NOT NULL, PRIMARY KEY(topic, partition)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE producers(name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, last_append INTEGER) STRICT, WITHOUT ROWID;
CREATE TABLE appends(
  number INTEGER PRIMARY KEY, appended_at INTEGER NOT NULL, position TEXT,
  producer TEXT, epoch INTEGER, sequence INTEGER, progress_start TEXT, progress_end TEXT) STRICT;
CREATE UNIQUE INDEX appends_by_producer ON appends(producer, sequence) WHERE producer IS NOT NULL;
CREATE TABLE chunks(
  id INTEGER PRIMARY KEY, topic INTEGER NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL,
  "end" INTEGER NOT NULL, rows INTEGER NOT NULL, append INTEGER NOT NULL, last_append INTEGER NOT NULL,
  schema INTEGER NOT NULL, crc INTEGER NOT NULL, size INTEGER NOT NULL, appended_at INTEGER NOT NULL,
  time_before INTEGER, file TEXT, data BLOB, bounds BLOB) STRICT;
CREATE UNIQUE INDEX chunks_by_offset ON chunks(topic, partition, "end");
CREATE INDEX chunks_by_append ON chunks(topic, append, partition);
CREATE TABLE garbage(file TEXT PRIMARY KEY, since INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE versions(
  topic INTEGER NOT NULL, key BLOB NOT NULL, version INTEGER NOT NULL, PRIMARY KEY(topic, key)) STRICT, WITHOUT ROWID;
CREATE TABLE pins(
  name TEXT NOT NULL, topic INTEGER NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
  PRIMARY KEY(name, topic, partition)) STRICT, WITHOUT ROWID;
CREATE TABLE groups(
  name TEXT NOT NULL, topic INTEGER NOT NULL, generation INTEGER NOT NULL, PRIMARY KEY(name, topic)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE members(
  "group" TEXT NOT NULL, topic INTEGER NOT NULL, member TEXT NOT NULL, alive_until INTEGER NOT NULL,
  PRIMARY KEY("group", topic, member)) STRICT, WITHOUT ROWID;
CREATE TABLE committed(
  "group" TEXT NOT NULL, topic INTEGER NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL,
  PRIMARY KEY("group", topic, partition)) STRICT, WITHOUT ROWID;
CREATE TABLE queues(
  name TEXT PRIMARY KEY, topic INTEGER NOT NULL, lease INTEGER NOT NULL, attempts INTEGER NOT NULL, dead TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
CREATE TABLE cursors(
  queue TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, PRIMARY KEY(queue, partition)
  ) STRICT, WITHOUT ROWID;
CREATE TABLE deliveries(
  queue TEXT NOT NULL, partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, receipt TEXT NOT NULL,
  until INTEGER NOT NULL, attempt INTEGER NOT NULL, PRIMARY KEY(queue, partition, "offset")) STRICT, WITHOUT ROWID;
CREATE INDEX deliveries_by_time ON deliveries(queue, until);
CREATE TABLE floors(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
PRAGMA user_version = {FORMAT};
"""

STEPS = {
    1: """
CREATE INDEX deliveries_by_time ON deliveries(queue, until);
CREATE TABLE floors(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
""",
}
"""From each older format to the next, word for word what `TABLES` says of it."""


def create(catalog: apsw.Connection) -> None:
    catalog.execute(TABLES)


def upgrade(catalog: apsw.Connection, found: int) -> None:
    for number in range(found, FORMAT):
        catalog.execute(STEPS[number])
    catalog.pragma("user_version", FORMAT)

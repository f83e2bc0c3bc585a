"""A table topic as a frame that is always the current one: its rows as of the append at which the batch ends.

Spark asks a static source once what there is to read, but reads it anew in every batch. So what there is to read is
decided when it is read: the checkpoint says which batch is running, and at which append of the log it ends. A batch
that runs again reads the same rows.

The rows rest in a file of the pipeline's cache, named after the position, mapped by whoever reads. The next one is made
of the last one and the changes since.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headwater.errors import Compacted
from headwater.log.position import AppendNumber, Position
from headwater.log.spec import TopicSpec
from headwater.process import duck
from headwater.process.checkpoint import Checkpoint
from headwater.process.frames.source import cut, travelling_schema
from headwater.process.frames.types import spark_schema
from headwater.process.job import Job
from headwater.records import DELETED, OFFSET, WEIGHT

KEPT = 3
"""Files of a table that stay: one may still be read by a task of the batch before."""


class TableReader(DataSourceReader):
    def __init__(self, job: Job, topic: str, cores: int) -> None:
        self._job = job
        self._topic = topic
        self._cores = cores

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._cores)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spec = self._job.log().topic(self._topic)
        rows = table_at(self._job, spec, _running(self._job))
        share = -(-rows.num_rows // self._cores)
        for batch in rows.slice(partition.value * share, share).to_batches():
            yield from cut(batch, travelling_schema(spec))


def _running(job: Job) -> AppendNumber:
    """The append at which the running batch ends."""
    checkpoint = Checkpoint(job.checkpoint, job.producer.name, job.begin)
    batch = checkpoint.last_planned()
    return AppendNumber(0) if batch is None else checkpoint.end(batch).number


def table_at(job: Job, spec: TopicSpec, number: AppendNumber) -> pa.Table:
    """The rows of a table, in the columns as users declared them, as of an append."""
    folder = job.cache / "tables" / spec.name
    position = Position.of({spec.name: job.log().position_at(spec.name, number)})
    path = folder / f"{_digits(position, spec)}.arrow"
    if not path.exists():
        _write(path, _made(job, spec, position, _older(folder, position, spec)))
    rows = ipc.open_file(pa.memory_map(str(path))).read_all()
    return rows.select(spec.schema.names)


def _digits(position: Position, spec: TopicSpec) -> str:
    return "-".join(str(position.offset(spec.name, partition)) for partition in range(spec.partitions))


def _older(folder: Path, wanted: Position, spec: TopicSpec) -> tuple[Position, Path] | None:
    """The newest file from which the wanted rows can be made."""
    found = []
    for path in folder.glob("*.arrow"):
        digits = path.stem.split("-")
        if len(digits) == spec.partitions and all(digit.isdigit() for digit in digits):
            position = Position.of({spec.name: dict(enumerate(map(int, digits)))})
            if wanted.covers(position):
                found.append((sum(map(int, digits)), str(path), position))
    return (found[-1][2], Path(found[-1][1])) if (found := sorted(found, key=lambda each: each[:2])) else None


def _made(job: Job, spec: TopicSpec, end: Position, older: tuple[Position, Path] | None) -> pa.Table:
    before = Position()
    parts = []
    order = pa.field(OFFSET, pa.int64())
    stored = pa.schema([*spec.stored, order]) if spec.upsert else spec.stored
    if older is not None:
        try:
            kept = ipc.open_file(pa.memory_map(str(older[1]))).read_all()
            if kept.schema == stored:
                before, parts = older[0], [kept]
        except (OSError, pa.ArrowInvalid):
            pass  # only a cache: made from the start
    try:
        parts += _changes(job, spec, stored, before, end)
    except Compacted:  # below that the log has only sums by now
        parts = _changes(job, spec, stored, Position(), end)
    rows = pa.concat_tables([stored.empty_table(), *parts])
    return duck.run(_latest(spec) if spec.upsert else _summed(spec), rows=rows).select(stored.names).cast(stored)


def _changes(job: Job, spec: TopicSpec, stored: pa.Schema, start: Position, end: Position) -> list[pa.Table]:
    changes = []
    for partition in range(spec.partitions):
        first, last = start.offset(spec.name, partition), end.offset(spec.name, partition)
        for batch in job.log().scan(spec.name, partition, first, last, metadata=True) if last > first else ():
            changes.append(pa.Table.from_batches([batch]).select(stored.names))
    return changes


def _summed(spec: TopicSpec) -> str:
    own = duck.columns(spec.schema.names)
    return f"SELECT {own}, sum({WEIGHT})::BIGINT AS {WEIGHT} FROM rows GROUP BY {own} HAVING sum({WEIGHT}) > 0"


def _latest(spec: TopicSpec) -> str:
    """A key is in one partition, so its offsets tell the order."""
    key = duck.columns(spec.key)
    newest = f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {OFFSET} DESC) = 1"
    return f"SELECT * FROM (SELECT * FROM rows {newest}) WHERE NOT {DELETED}"


def _write(path: Path, rows: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    with ipc.new_file(str(part), rows.schema) as writer:
        writer.write_table(rows)
    os.replace(part, path)
    for old in sorted(path.parent.glob("*.arrow"), key=lambda each: each.stat().st_mtime)[:-KEPT]:
        old.unlink(missing_ok=True)


class TableSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headwater-table"

    def schema(self) -> StructType:
        return spark_schema(Job.load(self.options["job"]).log().topic(self.options["topic"]).schema)

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(Job.load(self.options["job"]), self.options["topic"], int(self.options["cores"]))

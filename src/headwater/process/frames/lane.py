"""The frames lane: a user's function from Spark's frames to a frame, as one streaming query."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from headwater.errors import BadFrame
from headwater.log.evolution import widens
from headwater.log.spec import Kind, TopicSpec
from headwater.process import functions
from headwater.process.frames.attempt import ERROR, RECORD
from headwater.process.frames.sink import RowsSink, in_each_batch
from headwater.process.frames.types import arrow_schema
from headwater.process.job import Job
from headwater.process.plan import described_part
from headwater.process.source import MAX_ROWS, Limits
from headwater.process.userlines import told_with_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SMALL_TABLE = 50_000
"""A table with fewer records than this is sent to all tasks rather than shuffled."""

Mode = Literal["append", "update"]


@dataclass(frozen=True)
class FramesLane:
    """`bound` maps each parameter of the function to a topic: those of kind table are in `tables`, too."""

    name: str
    function: Callable[..., DataFrame]
    bound: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...]
    tables: tuple[str, ...]
    schema: pa.Schema | None
    key: tuple[str, ...] = ()
    time: str | None = None
    mode: Mode = "append"
    partitions: int = 4
    lateness: tuple[tuple[str, int], ...] = ()
    dead_letters: bool = True

    @property
    def where(self) -> str | None:
        return self.function.__code__.co_filename

    def described(self) -> dict[str, Any]:
        return {
            "source": functions.source(self.function),
            "function": described_part(self.function),
            "inputs": [list(each) for each in self.bound],
            "columns": [[field.name, str(field.type)] for field in self.schema] if self.schema else None,
            "key": list(self.key),
            "time": self.time,
            "mode": self.mode,
            "partitions": self.partitions,
            "lateness": [list(each) for each in self.lateness],
        }

    def over(self, topics: Mapping[str, str]) -> FramesLane:
        return replace(
            self,
            bound=tuple((parameter, topics.get(topic, topic)) for parameter, topic in self.bound),
            inputs=tuple(topics.get(topic, topic) for topic in self.inputs),
            tables=tuple(topics.get(topic, topic) for topic in self.tables),
            lateness=tuple((topics.get(topic, topic), micros) for topic, micros in self.lateness),
        )

    def output(self, topic: str) -> TopicSpec | None:
        return self._spec(topic, self.schema) if self.schema is not None else None

    def checked(self, session: SparkSession, probe: Job) -> TopicSpec:
        given = arrow_schema(self._frame(session, probe, Limits()).schema)
        given = pa.schema([field for field in given if field.name not in (ERROR, RECORD)])
        if self.schema is not None:
            self._check(given, self.schema)
        return self._spec(probe.topic, self.schema or given)

    def _spec(self, topic: str, schema: pa.Schema) -> TopicSpec:
        table = self.mode == "update"
        kind: Kind = "table" if table else "stream"
        return TopicSpec(topic, schema, self.key, self.time, kind, self.partitions, upsert=table)

    def _check(self, given: pa.Schema, declared: pa.Schema) -> None:
        for field in declared:
            if field.name not in given.names:
                raise self._bad(f"gives no column {field.name!r}, which {self.name!r} declares")
            found = given.field(field.name).type
            if found != field.type and not widens(found, field.type):
                raise self._bad(f"gives {field.name!r} as {found}, {self.name!r} declares {field.type}")
        for name in given.names:
            if name not in declared.names:
                raise self._bad(f"gives a column {name!r}, which {self.name!r} does not declare")

    def _bad(self, what: str) -> BadFrame:
        code = self.function.__code__
        return BadFrame(
            what=f"{code.co_filename}, line {code.co_firstlineno}: {code.co_name} {what}",
            do="Change the declared columns or what the function selects",
        )

    def _frame(self, session: SparkSession, job: Job, limits: Limits) -> DataFrame:
        given = {parameter: self._input(session, job, topic, limits) for parameter, topic in self.bound}
        with told_with_line(self.function):
            frame = self.function(**given)
        if not hasattr(frame, "writeStream"):
            raise self._bad(f"gives {type(frame).__name__}, not a frame of Spark's")
        if not frame.isStreaming:
            raise self._bad("gives a frame that is not made of its streams")
        return frame

    def _input(self, session: SparkSession, job: Job, topic: str, limits: Limits) -> DataFrame:
        if topic in self.tables:
            return _table(session, job, topic, limits)
        frame = (
            session.readStream.format("headwater-rows")
            .option("job", job.dump())
            .option("topic", topic)
            .options(**limits.options())
            .load()
        )
        lateness = dict(self.lateness).get(topic)
        if lateness is None:
            return frame
        time = job.log().topic(topic).time
        assert time is not None
        return frame.withWatermark(time, f"{lateness // 1000} milliseconds")

    @property
    def depth(self) -> int | None:
        return None

    @property
    def batch_rows(self) -> int:
        return MAX_ROWS

    def query(self, session: SparkSession, jobs: Sequence[Job], limits: Limits) -> DataStreamWriter:
        (job,) = jobs
        writer = self._frame(session, job, limits).writeStream
        if self.mode == "update":
            return writer.outputMode("update").foreachBatch(in_each_batch(job))
        return writer.format(RowsSink.name()).option("job", job.dump()).outputMode("append")


def _table(session: SparkSession, job: Job, topic: str, limits: Limits) -> DataFrame:
    frame = (
        session.read.format("headwater-table")
        .option("job", job.dump())
        .option("topic", topic)
        .option("cores", str(limits.cores))
        .load()
    )
    extents = job.log().extents(topic).values()
    small = sum(extent.end - extent.start for extent in extents) < SMALL_TABLE
    return frame.hint("broadcast") if small else frame


def bind(
    function: Callable[..., Any], inputs: dict[str, str] | None, known: Callable[[str], TopicSpec | None]
) -> tuple[tuple[str, str], ...]:
    """Which topic each parameter of a function stands for: that of its name, unless `inputs` says otherwise."""
    bound = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadFrame(what=f"{function.__name__} takes *{name}", do="Name each input topic as a parameter")
        if parameter.default is not parameter.empty and name not in (inputs or {}) and known(name) is None:
            continue
        topic = (inputs or {}).get(name, name)
        if known(topic) is None:
            raise BadFrame(
                what=f"parameter {name!r} of {function.__name__} names no topic of this app",
                do=f"Declare the topic {topic!r} before, or say inputs={{{name!r}: 'its topic'}}",
            )
        bound.append((name, topic))
    if not bound:
        raise BadFrame(what=f"{function.__name__} has no inputs", do="Name input topics as its parameters")
    return tuple(bound)

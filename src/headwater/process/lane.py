"""What a pipeline is, whichever lane it runs in: the seam between declaring it and running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headwater.log.spec import TopicSpec
from headwater.process.job import Job
from headwater.process.lineage import Declared, fingerprint_of
from headwater.process.source import Limits
from headwater.process.version import Version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Lane(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics whose records make batches."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The topics that are read as they are when a batch runs."""

    @property
    def lateness(self) -> tuple[tuple[str, int], ...]: ...

    @property
    def dead_letters(self) -> bool:
        """Whether records that cannot be processed go to a topic of their own."""

    @property
    def where(self) -> str | None:
        """The user's file, if there is a function of theirs: errors point into it."""

    def described(self) -> dict[str, Any]:
        """As JSON: all on which the output depends, but for the log. What stands under `sql` is only told."""

    def over(self, topics: Mapping[str, str]) -> Lane:
        """The same, reading these topics: of an input that is derived, those of one version."""

    def output(self, topic: str) -> TopicSpec | None:
        """The topic it writes to; None if only Spark can tell its columns."""

    def checked(self, session: SparkSession, probe: Job) -> TopicSpec:
        """The same, with what cannot run refused before anything is started. `probe` is a job that is never run."""

    @property
    def depth(self) -> int | None:
        """Pipelines of one app with the same depth can share a Spark query; None: it needs its own."""

    @property
    def batch_rows(self) -> int:
        """How many records a batch has at most, unless the user says so."""

    def query(self, session: SparkSession, jobs: Sequence[Job], limits: Limits) -> DataStreamWriter:
        """The whole query, to be started, for all of these jobs: each of a lane of this kind and depth."""


def declared(lane: Lane) -> Declared:
    """As the code has it; the fingerprint changes whenever the same log could give another state or output."""
    described = lane.described()
    return Declared(lane.name, fingerprint_of(described), described, (*lane.inputs, *lane.tables))


def first_version(lane: Lane) -> Version:
    """As if it were declared in a log that does not know it."""
    one = declared(lane)
    return Version(one.name, 1, one.fingerprint, one.description, {name: name for name in one.inputs}, "current")

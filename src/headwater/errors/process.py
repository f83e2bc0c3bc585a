"""What a pipeline or a view refuses."""

from __future__ import annotations

from headwater.errors.root import HeadwaterError


class ProcessError(HeadwaterError):
    pass


class SqlRefused(ProcessError):
    """A view's SQL that cannot be maintained, told before anything runs."""

    def __init__(
        self, *, view: str, construct: str, line: int | None = None, column: int | None = None, do: str
    ) -> None:
        where = f"view {view!r}" + (f", line {line}, column {column}" if line is not None else "")
        super().__init__(f"{where}: {construct}", do=do)
        self.view, self.construct, self.line, self.column = view, construct, line, column


class CheckpointLost(ProcessError):
    def __init__(self, *, pipeline: str, why: str) -> None:
        view = pipeline.partition("@")[0]
        super().__init__(
            f"pipeline {pipeline!r}: its checkpoint or state does not go with what stands in the log ({why})",
            do="It was deleted, cut back, restored, or is an older Headwater's. "
            f"`headwater view rebuild {view} --app FILE` builds it again from the log, beside what is there",
        )
        self.pipeline, self.why = pipeline, why


class PipelineFailed(ProcessError):
    """`where` is the user's own line; `batch` the one that is not done, `start` and `end` its inputs."""

    def __init__(
        self,
        *,
        pipeline: str,
        why: str,
        where: str | None = None,
        batch: int | None = None,
        start: str | None = None,
        end: str | None = None,
    ) -> None:
        place = f"{where}: " if where else ""
        inputs = f" in batch {batch} ({start or 'the start'} to {end})" if batch is not None else ""
        skip = f", or leave this batch to the dead letters with `headwater view skip {pipeline}`" if inputs else ""
        super().__init__(
            f"{place}pipeline {pipeline!r} stopped{inputs}: {why}",
            do=f"Nothing is lost: mend the cause and run again, it goes on there{skip}",
        )
        self.pipeline, self.why, self.where, self.batch, self.start, self.end = pipeline, why, where, batch, start, end


class BadFrame(ProcessError):
    """A frame, column or length of time that cannot be worked with, or a function over frames that does not fit what it
    is declared to be; told before anything runs."""

    def __init__(self, *, what: str, do: str) -> None:
        super().__init__(what, do=do)


class BadFunction(ProcessError):
    """A user's function that raised when its query was built: `where` is its own line."""

    def __init__(self, *, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}", do="Mend the function; nothing was started")
        self.where, self.why = where, why


class FunctionFailed(ProcessError):
    """A user's own function raised, or returned what its columns do not allow.

    `offset` and `last_offset` are those of the record, or of the first and the last of the records it was given.
    """

    def __init__(
        self,
        *,
        pipeline: str,
        key: object,
        topic: str,
        partition: int,
        offset: int,
        last_offset: int,
        error: str,
        trace: tuple[str, ...],
    ) -> None:
        several = last_offset != offset
        records = f"the records at offsets {offset} to {last_offset}" if several else f"the record at offset {offset}"
        what = f"pipeline {pipeline!r}: its function failed on {records} of {topic!r}, partition {partition}, key {key}"
        at = f", at {trace[-1]}" if trace else ""
        more = "".join(f"\n  {frame}" for frame in trace) if len(trace) > 1 else ""
        super().__init__(
            f"{what}: {error}{at}{more}",
            do="Mend the function, or say on_error='dead' to put such records aside. Nothing of this batch was kept",
        )
        self.pipeline, self.key, self.topic, self.partition = pipeline, key, topic, partition
        self.offset, self.last_offset, self.error, self.trace = offset, last_offset, error, trace


class JavaMissing(ProcessError):
    def __init__(self, *, found: str) -> None:
        super().__init__(
            f"Spark needs Java 17 or newer, found {found}", do="Install it, e.g. apt install openjdk-17-jre"
        )
        self.found = found


class SparkLost(ProcessError):
    """Spark's Java process has ended while it was needed; `code` is its exit code, or less than zero: the signal."""

    def __init__(self, *, code: int, words: str) -> None:
        how = f"was killed (signal {-code})" if code < 0 else f"ended (exit code {code})"
        super().__init__(
            f"Spark's Java process {how}; its words are in {words}",
            do="Nothing is lost: run again, all pipelines go on where they were. "
            "If the machine ran out of memory, let batches be smaller with max_rows",
        )
        self.code, self.words = code, words

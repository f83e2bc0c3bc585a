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


class PlanChanged(ProcessError):
    def __init__(self, *, view: str, change: str) -> None:
        super().__init__(
            f"view {view!r} has changed since it was built ({change})",
            do="Give the changed view a new name: it is then built from the log beside the old one",
        )
        self.view, self.change = view, change


class CheckpointLost(ProcessError):
    def __init__(self, *, pipeline: str, why: str) -> None:
        super().__init__(
            f"pipeline {pipeline!r}: Spark's checkpoint does not match what stands in the log ({why})",
            do="The checkpoint was deleted, cut back or restored. Declare the view under a new name: "
            "it is then built again from the log",
        )
        self.pipeline, self.why = pipeline, why


class PipelineFailed(ProcessError):
    def __init__(self, *, pipeline: str, why: str) -> None:
        super().__init__(
            f"pipeline {pipeline!r} stopped: {why}",
            do="Nothing is lost: mend the cause and run again, it goes on there",
        )
        self.pipeline, self.why = pipeline, why


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

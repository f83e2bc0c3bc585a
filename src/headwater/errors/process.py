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


class BadFrame(ProcessError):
    """A frame, column or length of time that a function of `headwater.frames` cannot work with; told before it runs."""

    def __init__(self, *, what: str, do: str) -> None:
        super().__init__(what, do=do)


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


class JavaMissing(ProcessError):
    def __init__(self, *, found: str) -> None:
        super().__init__(
            f"Spark needs Java 17 or newer, found {found}", do="Install it, e.g. apt install openjdk-17-jre"
        )
        self.found = found

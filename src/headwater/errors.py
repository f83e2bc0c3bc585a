"""One tree of errors. Each takes fields, writes its own message (what, where, what to do next) and pickles.

Families follow the rooms. Foreign exceptions are translated once, at the adapter that meets them; nothing is decided by
the text of a message. `CODES` at the end is the one table from class to HTTP status and exit code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class HeadwaterError(Exception):
    """The root: catch this to catch everything that Headwater raises on purpose."""

    def __init__(self, what: str, *, do: str = "") -> None:
        super().__init__(f"{what}. {do}." if do else f"{what}.")
        self.what = what
        self.do = do

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.args, self.__dict__)


def _revive(kind: type[HeadwaterError], args: tuple[Any, ...], fields: dict[str, Any]) -> HeadwaterError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


# --- records ---------------------------------------------------------------------------------------


class BadSchema(HeadwaterError):
    def __init__(self, *, what: str, do: str) -> None:
        super().__init__(what, do=do)


class BadRecord(HeadwaterError):
    """A record that does not fit its topic. Nothing of the append was stored."""

    def __init__(
        self, *, topic: str, why: str, row: int | None = None, column: str | None = None, do: str = ""
    ) -> None:
        where = f"topic {topic!r}"
        if row is not None:
            where += f", row {row} of the append"
        if column is not None:
            where += f", column {column!r}"
        super().__init__(f"{where}: {why}; nothing was appended", do=do or "Correct the record and append again")
        self.topic, self.why, self.row, self.column = topic, why, row, column


# --- log -------------------------------------------------------------------------------------------


class LogError(HeadwaterError):
    pass


class BadLogUrl(LogError):
    def __init__(self, *, url: str, why: str) -> None:
        super().__init__(f"cannot open the log {url!r}: {why}", do="Give a folder as 'file:PATH'")
        self.url, self.why = url, why


class BadName(LogError):
    def __init__(self, *, name: str, kind: str = "topic") -> None:
        super().__init__(
            f"{name!r} cannot name a {kind}",
            do="Use a letter or underscore, then letters, digits, '_', '-' or '.', at most 200 characters",
        )
        self.name = name


class TopicNotFound(LogError):
    def __init__(self, *, topic: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"there is no topic {topic!r}", do=f"Topics here: {_listed(known)}")
        self.topic = topic


class TopicMismatch(LogError):
    """The topic exists with another shape than the one declared now."""

    def __init__(self, *, topic: str, difference: str) -> None:
        super().__init__(
            f"topic {topic!r} exists with another {difference}",
            do="Declare it as it is, or use a new name: a topic cannot be changed in place yet",
        )
        self.topic, self.difference = topic, difference


class BadPartition(LogError):
    def __init__(self, *, topic: str, partition: int, partitions: int) -> None:
        super().__init__(f"topic {topic!r} has no partition {partition}", do=f"Use 0 to {partitions - 1}")
        self.topic, self.partition, self.partitions = topic, partition, partitions


class BadPosition(LogError):
    def __init__(self, *, text: str, why: str) -> None:
        super().__init__(
            f"{text!r} is not a position: {why}",
            do="Use the token that an append returned, such as 'clicks:0=12,1=7;users:0=3'",
        )
        self.text, self.why = text, why


class Fenced(LogError):
    """A newer incarnation of this producer exists; this one must stop. Never retry it."""

    def __init__(self, *, producer: str, epoch: int, current: int) -> None:
        super().__init__(
            f"producer {producer!r} at epoch {epoch} was replaced by epoch {current}; nothing was appended",
            do="Stop this process: a newer one has taken over",
        )
        self.producer, self.epoch, self.current = producer, epoch, current


class ProgressBroken(LogError):
    """An append whose input range does not follow, or contradicts, what its producer appended before."""

    def __init__(self, *, producer: str, sequence: int, why: str) -> None:
        super().__init__(
            f"producer {producer!r}, sequence {sequence}: {why}; nothing was appended",
            do="The producer's own record of its progress was lost or restored: rebuild its output from the log",
        )
        self.producer, self.sequence, self.why = producer, sequence, why


class Busy(LogError):
    """Another writer held the catalog for longer than we wait. Retrying is safe."""

    def __init__(self, *, path: str, waited_s: float) -> None:
        super().__init__(
            f"another writer has held {path} for {waited_s:g} s; nothing was appended",
            do="Try again; if it goes on, look for a stopped process that has the file open",
        )
        self.path, self.waited_s = path, waited_s


class Corrupt(LogError):
    """Bytes on disk are not the bytes that were written."""

    def __init__(self, *, what: str, file: str) -> None:
        super().__init__(f"{what} in {file} is damaged", do="Restore this file from a backup; nothing was changed")
        self.file = file


class StorageFailed(LogError):
    """The disk said no. The append was not acknowledged; everything acknowledged before stands."""

    def __init__(self, *, act: str, file: str, why: str) -> None:
        super().__init__(
            f"{act} {file} failed: {why}; nothing was appended",
            do="Free space or mend the disk, then open the log again",
        )
        self.act, self.file, self.why = act, file, why


class NewerFormat(LogError):
    def __init__(self, *, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} has format {found}, this Headwater knows {known}", do="Upgrade Headwater to open this log"
        )
        self.path, self.found, self.known = path, found, known


# --- process ---------------------------------------------------------------------------------------


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


class JavaMissing(ProcessError):
    def __init__(self, *, found: str) -> None:
        super().__init__(
            f"Spark needs Java 17 or newer, found {found}", do="Install it, e.g. apt install openjdk-17-jre"
        )
        self.found = found


# --- serve -----------------------------------------------------------------------------------------


class ServeError(HeadwaterError):
    pass


class ViewNotFound(ServeError):
    def __init__(self, *, view: str, known: Iterable[str] = ()) -> None:
        super().__init__(f"there is no view {view!r}", do=f"Views here: {_listed(known)}")
        self.view = view


class BadKey(ServeError):
    def __init__(self, *, view: str, key: tuple[str, ...], given: object) -> None:
        super().__init__(
            f"view {view!r} has the key ({', '.join(key)}), got {given!r}", do="Give one value a key column"
        )
        self.view, self.key = view, key


class NotCovered(ServeError):
    """The view did not reach the asked position in time. The write itself is safe."""

    def __init__(self, *, view: str, asked: str, covers: str, timeout_s: float) -> None:
        super().__init__(
            f"after {timeout_s:g} s view {view!r} covers {covers or 'nothing'}, not yet {asked}",
            do="Ask again or with a longer timeout; is the app running?",
        )
        self.view, self.asked, self.covers, self.timeout_s = view, asked, covers, timeout_s


class NotAnInput(ServeError):
    def __init__(self, *, view: str, asked: Iterable[str], reads: Iterable[str]) -> None:
        super().__init__(
            f"view {view!r} reads none of {_listed(asked)}", do=f"Wait for a position of {_listed(reads)} instead"
        )
        self.view = view


class BadRequest(ServeError):
    def __init__(self, *, why: str, do: str) -> None:
        super().__init__(why, do=do)
        self.why = why


class TooLarge(ServeError):
    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(f"the body is larger than {limit_bytes} bytes", do="Send it in several appends")
        self.limit_bytes = limit_bytes


# --- app and command line --------------------------------------------------------------------------


class UsageError(HeadwaterError):
    """A call that cannot be meant: wrong order, wrong combination, wrong file."""

    def __init__(self, *, what: str, do: str) -> None:
        super().__init__(what, do=do)


# class -> (HTTP status, exit code); the nearest ancestor counts.
CODES: dict[type[HeadwaterError], tuple[int, int]] = {
    HeadwaterError: (500, 1),
    BadSchema: (422, 2),
    BadRecord: (422, 2),
    BadLogUrl: (500, 2),
    BadName: (422, 2),
    TopicNotFound: (404, 3),
    TopicMismatch: (409, 4),
    BadPartition: (422, 2),
    BadPosition: (422, 2),
    Fenced: (409, 5),
    ProgressBroken: (409, 5),
    Busy: (503, 6),
    Corrupt: (500, 7),
    StorageFailed: (507, 7),
    NewerFormat: (500, 7),
    SqlRefused: (422, 2),
    PlanChanged: (409, 4),
    CheckpointLost: (500, 5),
    PipelineFailed: (500, 1),
    JavaMissing: (500, 8),
    ViewNotFound: (404, 3),
    BadKey: (422, 2),
    NotCovered: (504, 6),
    NotAnInput: (422, 2),
    BadRequest: (400, 2),
    TooLarge: (413, 2),
    UsageError: (400, 2),
}


def codes(error: HeadwaterError) -> tuple[int, int]:
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)

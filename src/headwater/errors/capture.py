"""What stands between a database and its topics. Each names the statement or command to run."""

from __future__ import annotations

from headwater.errors.root import HeadwaterError


class CaptureError(HeadwaterError):
    pass


class SourceRefused(CaptureError):
    """The database is not set up so that it can be captured, or does not let us; `statement` mends it."""

    def __init__(self, *, source: str, why: str, statement: str) -> None:
        super().__init__(f"{source}: {why}", do=f"Run: {statement}")
        self.source, self.why, self.statement = source, why, statement


class SourceLost(CaptureError):
    """The connection to the database is gone, or could not be made."""

    def __init__(self, *, source: str, why: str) -> None:
        super().__init__(
            f"{source}: {why}", do="Nothing is lost: when the database answers again, capture goes on where it was"
        )
        self.source, self.why = source, why


class CaptureFailed(CaptureError):
    """What should not happen."""

    def __init__(self, *, capture: str, why: str) -> None:
        super().__init__(
            f"capture {capture!r} stopped: {why}", do="Nothing is lost: mend the cause and run again, it goes on there"
        )
        self.capture, self.why = capture, why


class CaptureGap(CaptureError):
    """Changes between `position` and what the database still has are gone: going on would skip them silently."""

    def __init__(self, *, capture: str, why: str, position: str) -> None:
        super().__init__(
            f"capture {capture!r} stands at {position}, but {why}",
            do="What changed in between cannot be streamed any more. "
            f"`headwater capture resnapshot {capture} --all` compares tables with topics, appends what differs",
        )
        self.capture, self.why, self.position = capture, why, position


class TableChanged(CaptureError):
    """A table was altered in a way that its topic cannot follow."""

    def __init__(self, *, table: str, topic: str, why: str, do: str) -> None:
        super().__init__(f"table {table!r}: {why}; its topic {topic!r} cannot follow", do=do)
        self.table, self.topic, self.why = table, topic, why


class BadMessage(CaptureError):
    """A message of what others have captured that is not in its format, or does not fit the table."""

    def __init__(self, *, topic: str, partition: int, offset: int, why: str) -> None:
        super().__init__(
            f"topic {topic!r}, partition {partition}: the message at offset {offset} cannot be read: {why}",
            do="Nothing of it was kept. Correct the table's columns or the settings, or put such messages aside with "
            "settings=CaptureSettings(on_error='dead'), then run again: it goes on there",
        )
        self.topic, self.partition, self.offset, self.why = topic, partition, offset, why


class BadCapture(CaptureError):
    """A capture that is declared in a way that cannot be."""

    def __init__(self, *, what: str, do: str) -> None:
        super().__init__(what, do=do)


class BadSignature(CaptureError):
    """A webhook that cannot be shown to come from who it should. What it says is not looked at."""

    def __init__(self, *, why: str) -> None:
        super().__init__(
            f"the webhook is not verified: {why}; nothing was appended",
            do="Sign it as Standard Webhooks says: webhook-id, webhook-timestamp and webhook-signature",
        )
        self.why = why


class BadLine(CaptureError):
    """A line of a file that does not fit its topic, at which the capture stops; `offset` is where it begins."""

    def __init__(self, *, file: str, offset: int, topic: str, why: str) -> None:
        super().__init__(
            f"{file}, the line at byte {offset}: {why}; all lines before it are in topic {topic!r}",
            do="Mend the line, or the topic's columns, and run again: it goes on there. "
            "Or say TailSettings(bad_lines='dead'), then such lines go to a topic of their own",
        )
        self.file, self.offset, self.topic, self.why = file, offset, topic, why

"""Records and schemas that do not fit."""

from __future__ import annotations

from headwater.errors.root import HeadwaterError


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

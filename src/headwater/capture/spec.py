"""What a user declares of a capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headwater.errors import BadCapture, BadName
from headwater.log.spec import NAME
from headwater.log.topic import Topic

Tables = Sequence[str] | Mapping[str, str | Topic]
"""Names of tables, or `{table: topic}`; `sales.*` are all tables of a schema."""
POSTGRES = ("postgresql://", "postgres://")
MYSQL = ("mysql://", "mariadb://")
SQLITE = "sqlite:"
MESSAGES = ("debezium:", "maxwell:")
"""Not databases, but topics of what others have captured."""
ADDRESSES = (*POSTGRES, *MYSQL, SQLITE, *MESSAGES)


@dataclass(frozen=True)
class CaptureSettings:
    """`partitions` are those of new topics. `wal_budget_bytes` is how much WAL the server may keep for us: past it
    there is an alert and, with `drop_slot`, the slot is dropped and the tables are compared with their topics.
    `outbox` is the table, if any, whose rows are told as events.

    `poll` is a column that grows with every change: tables are asked every `every_s` for rows above the last one seen,
    less `overlap` (seconds, or steps of a number) for what is committed late.

    Of messages: `on_error` "dead" puts those that cannot be read into `<name>.dead`; where they have no schema beside
    them, `times` is the unit of moments, and `decimals` says whether they are base64 or texts of numbers."""

    partitions: int = 4
    heartbeat_s: float = 10.0
    wal_budget_bytes: int | None = None
    drop_slot: bool = False
    outbox: str | None = None
    poll: str | None = None
    every_s: float = 5.0
    overlap: float = 60.0
    on_error: Literal["stop", "dead"] = "stop"
    times: Literal["ms", "us", "ns"] | None = None
    decimals: Literal["precise", "string"] = "precise"

    def __post_init__(self) -> None:
        if self.every_s <= 0 or self.overlap < 0:
            raise BadCapture(what="every_s or overlap below zero", do="Say every_s above zero, overlap zero or more")
        for name, value, known in (
            ("on_error", self.on_error, ("stop", "dead")),
            ("times", self.times, (None, "ms", "us", "ns")),
            ("decimals", self.decimals, ("precise", "string")),
        ):
            if value not in known:
                raise BadCapture(what=f"{name} is {value!r}", do=f"Use one of {', '.join(map(repr, known))}")
        if self.drop_slot and self.wal_budget_bytes is None:
            raise BadCapture(what="drop_slot without a budget", do="Say wal_budget_bytes too")


@dataclass(frozen=True)
class CaptureSpec:
    """What is captured: `tables` maps what the database calls them to topics."""

    name: str
    url: str = field(repr=False)
    tables: Mapping[str, str]
    settings: CaptureSettings = CaptureSettings()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise BadName(name=self.name, kind="capture")
        if not self.url.startswith(ADDRESSES):
            raise BadCapture(
                what=f"capture {self.name!r}: no database that can be captured",
                do="Give postgresql://USER:PASSWORD@HOST/DATABASE, mysql://..., sqlite:PATH or debezium:TOPIC",
            )
        if not self.tables:
            raise BadCapture(what=f"capture {self.name!r} has no tables", do="Say tables=['users', ...]")
        if self.settings.outbox is not None and self.settings.outbox not in self.tables:
            raise BadCapture(
                what=f"the outbox {self.settings.outbox!r} is not among the tables", do="Name it in tables= as well"
            )


def topics_of(tables: Tables) -> dict[str, str]:
    """A table's topic is called like it, unless it is told otherwise."""
    if not isinstance(tables, Mapping):
        return {table: table for table in tables}
    return {table: topic.name if isinstance(topic, Topic) else topic for table, topic in tables.items()}

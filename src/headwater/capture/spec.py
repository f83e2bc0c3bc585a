"""What a user declares of a capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.errors import BadCapture, BadName
from headwater.log.spec import NAME

Tables = Sequence[str] | Mapping[str, str]
"""Names of tables, or `{table: topic}`; `sales.*` are all tables of a schema."""

MYSQL = ("mysql://", "mariadb://")


@dataclass(frozen=True)
class CaptureSettings:
    """`partitions` are those of new topics. `wal_budget_bytes` is how much WAL the server may keep for us: past it
    there is an alert and, with `drop_slot`, the slot is dropped and the tables are compared with their topics.
    `outbox` is the table, if any, whose rows are told as events."""

    partitions: int = 4
    heartbeat_s: float = 10.0
    wal_budget_bytes: int | None = None
    drop_slot: bool = False
    outbox: str | None = None

    def __post_init__(self) -> None:
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
        if not self.url.startswith(("postgresql://", "postgres://", *MYSQL, "sqlite:")):
            raise BadCapture(
                what=f"capture {self.name!r}: no database that can be captured",
                do="Give an address: postgresql://USER:PASSWORD@HOST/DATABASE, mysql://... or sqlite:PATH",
            )
        if not self.tables:
            raise BadCapture(what=f"capture {self.name!r} has no tables", do="Say tables=['users', ...]")
        if self.settings.outbox is not None and self.settings.outbox not in self.tables:
            raise BadCapture(
                what=f"the outbox {self.settings.outbox!r} is not among the tables", do="Name it in tables= as well"
            )


def topics_of(tables: Tables) -> dict[str, str]:
    """A table's topic is called like it, unless it is told otherwise."""
    return dict(tables) if isinstance(tables, Mapping) else {table: table for table in tables}

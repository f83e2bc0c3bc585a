"""The WAL that the server keeps for us: measured, and kept within a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.capture.postgres.connection import Connection
from headwater.capture.spec import CaptureSettings

QUERY = """
    SELECT (pg_current_wal_lsn() - restart_lsn)::bigint, (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint
    FROM pg_replication_slots WHERE slot_name = %s"""


@dataclass(frozen=True)
class Kept:
    slot_bytes: int
    lag_bytes: int
    over: bool = False

    @property
    def alert(self) -> str:
        return f"the server keeps {self.slot_bytes // 2**20} MB of WAL, more than the budget" if self.over else ""

    def told(self) -> dict[str, Any]:
        return {"lag_bytes": self.lag_bytes, "slot_bytes": self.slot_bytes, "alert": self.alert}


def kept_for(connection: Connection, slot: str, settings: CaptureSettings) -> Kept:
    row: Any = connection.execute(QUERY, (slot,)).fetchone()
    if row is None or row[0] is None:
        return Kept(0, 0)
    budget = settings.wal_budget_bytes
    return Kept(max(0, row[0]), max(0, row[1] or 0), budget is not None and row[0] > budget)

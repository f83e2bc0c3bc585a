"""What we test ourselves with, shipped so that others can test their own backends and operators.

Imported when asked for: who only wants a Kafka broker or a faulty disk needs no DuckDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.process.keyed.memory import MemoryState
    from headwater.testing.planbench import PlanBench

__all__ = ["MemoryState", "PlanBench"]


def __getattr__(name: str) -> Any:
    if name == "MemoryState":
        from headwater.process.keyed.memory import MemoryState

        return MemoryState
    if name == "PlanBench":
        from headwater.testing.planbench import PlanBench

        return PlanBench
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

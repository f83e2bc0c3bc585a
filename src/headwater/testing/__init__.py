"""What we test ourselves with, shipped so that others can test their own backends and operators."""

from headwater.process.keyed.memory import MemoryState
from headwater.testing.planbench import PlanBench

__all__ = ["MemoryState", "PlanBench"]

"""Upkeep: acts that change how records rest. Each writes new chunks and swaps rows of the catalog in one
transaction, so readers in the middle of a scan do not notice and a crash leaves nothing to repair."""

from headwater.log.embedded.upkeep.keeper import Keeper

__all__ = ["Keeper"]

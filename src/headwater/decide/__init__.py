"""Commands become events: pure functions decide, the log keeps what was decided. Imports the log only."""

from headwater.decide.decider import Decider
from headwater.decide.group import Decided
from headwater.decide.spec import DeciderSpec, refuse

__all__ = ["Decided", "Decider", "DeciderSpec", "refuse"]

"""Histories of a log in Jepsen's form: what every process asked, what it was told, and what must hold of all of it.

events      a line of a history, and the operations that lines make
recorder    writes lines so that a killed process loses at most its last one
client      appends and polls any `Log`, recording both
checkers    one named checker for each invariant
"""

from headwater.testing.history.checkers import CHECKERS, Finding, check
from headwater.testing.history.client import Client, spec_of
from headwater.testing.history.events import Event, History, Operation, Range, Record
from headwater.testing.history.recorder import Recorder

__all__ = [
    "CHECKERS",
    "Client",
    "Event",
    "Finding",
    "History",
    "Operation",
    "Range",
    "Record",
    "Recorder",
    "check",
    "spec_of",
]

"""Named points of the protocol where a test makes a run fail: so that each step's crash is one that can be repeated.

Steps are those of docs/guarantees.md: "2 before" is when a task has read nothing yet, "3 after" when the append is
durable and Spark does not know. Steps 1 and 6 are Spark's own: around them a test changes the checkpoint instead.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Literal

from headwater.errors import PipelineFailed

Step = Literal["1 before", "1 after", "2 before", "2 after", "3 before", "3 after", "7 before", "7 after"]


@dataclass(frozen=True)
class Failpoint:
    step: Step
    batch: int
    how: Literal["raise", "kill"] = "raise"
    """`kill` ends the process it is in, which is one of Spark's workers, with SIGKILL."""

    def reached(self, step: Step, batch: int, pipeline: str) -> None:
        if (step, batch) != (self.step, self.batch):
            return
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise PipelineFailed(pipeline=pipeline, why=f"failpoint {step!r} of batch {batch}")

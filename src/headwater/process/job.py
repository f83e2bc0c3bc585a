"""What every task of a pipeline's run must know. Travels to workers as an option, as text."""

from __future__ import annotations

import base64
import os
import pickle
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from headwater.log import open_log
from headwater.log.protocol import Log, Producer
from headwater.process import functions
from headwater.process.plan import Plan


@dataclass(frozen=True)
class Job:
    plan: Plan
    log_url: str
    producer: Producer
    topic: str
    """Where the output goes."""
    folder: str
    """The pipeline's own: Spark's checkpoint, and the cache of state."""

    def log(self) -> Log:
        return _opened(self.log_url, os.getpid())

    @property
    def inputs(self) -> list[str]:
        return list(dict.fromkeys(read.topic for read in self.plan.reads))

    @property
    def checkpoint(self) -> Path:
        return Path(self.folder) / "checkpoint"

    @property
    def cache(self) -> Path:
        return Path(self.folder) / "cache"

    def dump(self) -> str:
        return base64.b64encode(functions.dumped(self)).decode()

    @staticmethod
    @lru_cache(maxsize=64)
    def load(text: str) -> Job:
        job = pickle.loads(base64.b64decode(text))
        assert isinstance(job, Job)
        return job


@lru_cache(maxsize=16)
def _opened(url: str, pid: int) -> Log:
    """One log a worker process: SQLite's connections do not survive a fork, hence the process id in the key."""
    return open_log(url)

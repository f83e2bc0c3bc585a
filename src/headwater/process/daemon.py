"""Spark's Python worker daemon with our imports done before it forks.

Without it each worker spends two seconds of CPU on imports, several of them at once in the first batch; and Spark runs
a full garbage collection after every task, which walks all that was imported. Frozen, it is not walked.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark import daemon

import headwater.process.frames.sink
import headwater.process.frames.source
import headwater.process.frames.table
import headwater.process.keyed.runner
import headwater.process.keyed.sink
import headwater.process.keyed.source  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    daemon.manager()

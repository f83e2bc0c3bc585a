"""Spark's Python processes for planning and committing, without a walk over all that they have imported at every call.

Spark runs a full garbage collection after each call of such a process, two calls a batch. Unlike its workers they are
forked before our imports (see `daemon`), so that each walk takes 50 ms of CPU; what is frozen is not walked.

pyarrow imports pandas when it first turns an array into numpy's, which takes longer than a batch; so it is done before.
"""

from __future__ import annotations

import gc
from functools import lru_cache


@lru_cache(maxsize=1)
def settle() -> None:
    """Once in a process, when its imports are done."""
    import pandas  # noqa: F401

    gc.collect()
    gc.freeze()

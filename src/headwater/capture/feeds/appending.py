"""A feed's append waits for room in its topic and for its turn at the log, as long as it takes or until stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from headwater.capture.appender import Appender
from headwater.capture.position import SourcePosition
from headwater.errors import Busy, Full
from headwater.log.protocol import Appended, Part

PATIENCE_S = 0.5
"""How long one try of a feed waits (`Appender(patience_s=)`); then it is seen whether to stop."""


def append_when_possible(
    appender: Appender,
    parts: Sequence[Part],
    position: SourcePosition,
    stopped: threading.Event,
    waiting: Callable[[str], None],
    **state: Any,
) -> Appended | None:
    """None if stopped before: nothing was appended then. `waiting` is told why it waits, and "" when it does not."""
    while True:
        try:
            done = appender.append(parts, position, **state)
        except (Full, Busy) as why:
            waiting(why.what)
            if stopped.is_set():
                return None
        else:
            waiting("")
            return done

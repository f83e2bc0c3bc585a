"""From a URL to a log."""

from __future__ import annotations

from pathlib import Path

from headwater.clock import Clock, system_clock
from headwater.errors import BadLogUrl
from headwater.log.protocol import Log


def open_log(url: str, *, clock: Clock = system_clock) -> Log:
    """Open the log at `file:PATH`; a folder that is not there is made."""
    scheme, colon, rest = url.partition(":")
    if scheme == "kafka":
        raise BadLogUrl(url=url, why="Kafka is not there yet")
    if not colon or scheme != "file":
        raise BadLogUrl(url=url, why="no known scheme")
    if not rest:
        raise BadLogUrl(url=url, why="no path")
    from headwater.log.embedded import EmbeddedLog

    return EmbeddedLog(Path(rest), clock=clock)

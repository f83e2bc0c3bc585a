"""From a URL to a log, and from a log to its groups and queues."""

from __future__ import annotations

from pathlib import Path

from headwater.clock import Clock, system_clock
from headwater.errors import BadLogUrl, UsageError
from headwater.log.groups import Groups
from headwater.log.protocol import Log
from headwater.log.queues import Queues


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


def groups_of(log: Log) -> Groups:
    from headwater.log.embedded import EmbeddedLog
    from headwater.log.embedded.groups import EmbeddedGroups

    if isinstance(log, EmbeddedLog):
        return EmbeddedGroups(log)
    raise UsageError(what=f"the groups of {log.url} are not kept by Headwater", do="Use a log at file:PATH")


def queues_of(log: Log) -> Queues:
    from headwater.log.embedded import EmbeddedLog
    from headwater.log.embedded.queues import EmbeddedQueues

    if isinstance(log, EmbeddedLog):
        return EmbeddedQueues(log)
    raise UsageError(what=f"{log.url} has no queues", do="Use a log at file:PATH")

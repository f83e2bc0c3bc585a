"""Durable order: one protocol, a backend chosen by URL. This room imports neither Spark nor DuckDB."""

from headwater.log.opening import open_log
from headwater.log.position import Position
from headwater.log.protocol import Appended, Log, Producer, Progress
from headwater.log.spec import Settings, TopicSpec
from headwater.log.topic import Topic

__all__ = ["Appended", "Log", "Position", "Producer", "Progress", "Settings", "Topic", "TopicSpec", "open_log"]

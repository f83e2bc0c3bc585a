"""What a user declares of a feed, and what is to happen when it comes faster than it can be appended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from headwater.errors import BadCapture, BadName
from headwater.log.spec import NAME, TopicSpec, WhenFull
from headwater.log.topic import Topic

STATSD, TAIL = "statsd://", "tail:"


@dataclass(frozen=True)
class StatsdSettings:
    """Lines are appended every `flush_s`. While the log is slow, datagrams of up to `buffer_bytes` wait in memory;
    past that, `when_slow` drops the newest or the oldest. `anybody` allows an address that others than this machine
    can reach: UDP does not say who sends."""

    when_slow: WhenFull = "drop_newest"
    buffer_bytes: int = 16 * 1024 * 1024
    flush_s: float = 0.1
    anybody: bool = False
    partitions: int = 4

    def __post_init__(self) -> None:
        if self.when_slow == "block":
            raise BadCapture(
                what="UDP cannot block: its senders do not wait for anybody", do="Say drop_newest or drop_oldest"
            )
        _known("when_slow", self.when_slow, "drop_newest", "drop_oldest")
        _above_zero(buffer_bytes=self.buffer_bytes, flush_s=self.flush_s)


@dataclass(frozen=True)
class TailSettings:
    """`lines` are text, or JSON objects for the topic's columns. One that does not fit stops the capture or, with
    bad_lines="dead", goes to the topic `<topic>.dead`. `start` is where files begin that are there at the very first
    run.

    The file is the buffer: with when_slow="block" it is read when the log takes more, however far behind that is. With
    "drop_oldest", lines are dropped, and counted, once more than `buffer_bytes` of a file wait to be read."""

    lines: Literal["text", "json"] = "text"
    bad_lines: Literal["stop", "dead"] = "stop"
    start: Literal["start", "end"] = "start"
    when_slow: WhenFull = "block"
    buffer_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 1024 * 1024
    partitions: int = 4

    def __post_init__(self) -> None:
        if self.when_slow == "drop_newest":
            raise BadCapture(what="a file's newest lines are not dropped: they are read last", do="Say drop_oldest")
        _known("when_slow", self.when_slow, "block", "drop_oldest")
        _known("lines", self.lines, "text", "json")
        _known("bad_lines", self.bad_lines, "stop", "dead")
        _known("start", self.start, "start", "end")
        _above_zero(buffer_bytes=self.buffer_bytes, line_bytes=self.line_bytes)


@dataclass(frozen=True)
class FeedSpec:
    """`into` is a topic that was declared, or the name of one that is made with the feed's own columns."""

    name: str
    url: str
    into: str | Topic
    settings: StatsdSettings | TailSettings

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise BadName(name=self.name, kind="capture")

    def to_state(self) -> dict[str, str]:
        """What `headwater capture status` says of it."""
        return {"url": self.url, "when_slow": self.settings.when_slow}


def feed_of(name: str, url: str, into: str | Topic | None, settings: object) -> FeedSpec:
    kind = StatsdSettings if url.startswith(STATSD) else TailSettings
    if into is None:
        raise BadCapture(what=f"capture {name!r} has no topic", do="Say into='lines', or a topic that you declared")
    if settings is not None and not isinstance(settings, kind):
        what = f"capture {name!r} has settings of another kind: {type(settings).__name__}"
        raise BadCapture(what=what, do=f"Give hw.{kind.__name__}(...)")
    return FeedSpec(name, url, into, settings or kind())


def check_columns(topic: TopicSpec, columns: pa.Schema, needed: str) -> None:
    """That a declared topic has the column that matters most, and wants none that nothing would fill."""
    unfilled = [name for name in topic.required if name not in columns.names and not name.startswith("_")]
    if needed not in topic.schema.names:
        what = f"topic {topic.name!r} has no column {needed!r}"
    elif unfilled:
        what = f"topic {topic.name!r} must have its column {unfilled[0]!r} in each record, and nothing would fill it"
    else:
        return
    raise BadCapture(what=what, do=f"Of these columns give it what you like: {', '.join(columns.names)}")


def _known(name: str, given: str, *allowed: str) -> None:
    if given not in allowed:
        raise BadCapture(what=f"{name} is {given!r}", do=f"Use {' or '.join(allowed)}")


def _above_zero(**given: float) -> None:
    for name, value in given.items():
        if not value > 0:
            raise BadCapture(what=f"{name} is {value}", do="Give a number above zero")

"""StatsD over UDP: metrics as records. What was received and not appended yet is lost when the process is killed, at
most `flush_s` of it while the log keeps up; UDP itself promises no more. A bad line is counted, and the last one is
shown."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

from headwater.capture.appender import Appender
from headwater.capture.feeds.appending import PATIENCE_S, append_when_possible
from headwater.capture.feeds.counts import Counts
from headwater.capture.feeds.datagrams import TAKE_BYTES, Datagrams, bind, lines_in
from headwater.capture.feeds.metrics import COLUMNS, BadMetric, Metric, metrics_in
from headwater.capture.feeds.spec import FeedSpec, StatsdSettings, check_columns
from headwater.capture.position import SourcePosition
from headwater.capture.status import CaptureStatus
from headwater.clock import Clock, system_clock
from headwater.log.protocol import Log
from headwater.log.spec import TopicSpec
from headwater.log.topic import Topic
from headwater.records import to_batch

SHOWN = 80
"""How much of a bad line is shown."""


class StatsdCapture:
    def __init__(self, spec: FeedSpec, log: Log, *, clock: Clock = system_clock) -> None:
        assert isinstance(spec.settings, StatsdSettings)
        self.spec = spec
        self.settings = spec.settings
        self._log = log
        self._clock = clock
        self._phase = "starting"
        self._waiting = ""
        self._counts = Counts()
        self._lost_before = 0
        """In earlier runs: the kernel counts anew for each."""
        self._appender: Appender | None = None
        self._datagrams: Datagrams | None = None
        self._done = 0
        """Datagrams of this run that were taken and dealt with."""
        self.address: tuple[str, int] | None = None
        """Where it listens, once it does."""

    def topics(self) -> dict[str, TopicSpec]:
        into = self.spec.into
        if isinstance(into, Topic):
            check_columns(into.spec, COLUMNS, "name")
            return {into.name: into.spec}
        made = TopicSpec(into, COLUMNS, key=("name",), time="at", partitions=self.settings.partitions)
        return {into: self._log.create(made)}

    def run(self, stopped: threading.Event) -> None:
        (spec,) = self.topics().values()
        with bind(self.spec.url, anybody=self.settings.anybody) as bound:
            appender = self._appender = Appender(self._log, self.spec.name, patience_s=PATIENCE_S)
            self._counts = Counts.from_state(appender.state.get("tally"))
            self._lost_before = self._counts.lost
            datagrams = self._datagrams = Datagrams(bound, self.settings, url=self.spec.url)
            self._done = 0
            datagrams.start()
            self.address = bound.getsockname()[:2]
            self._phase = "listening"
            try:
                while not stopped.is_set():
                    if taken := datagrams.take(timeout_s=self.settings.flush_s):
                        self._append(spec, appender, taken, stopped)
                        if datagrams.held_bytes < TAKE_BYTES:
                            stopped.wait(self.settings.flush_s)
            finally:
                datagrams.stop()
            while (taken := datagrams.take(timeout_s=0)) and self._append(spec, appender, taken, stopped):
                pass

    def goal(self) -> int:
        return self._datagrams.received if self._datagrams is not None else 0

    def reached(self, goal: int) -> bool:
        """Of what has come; what the kernel holds is not known."""
        datagrams = self._datagrams
        return self._phase == "listening" and datagrams is not None and self._done + datagrams.dropped >= goal

    def status(self) -> CaptureStatus:
        appender, datagrams = self._appender, self._datagrams
        counts = self._settled()
        return CaptureStatus(
            self.spec.name,
            self._phase,
            appender.rows if appender is not None else 0,
            position=f"{counts.lines} lines",
            when_slow=self.settings.when_slow,
            waiting=self._waiting,
            buffered_bytes=datagrams.held_bytes if datagrams is not None else 0,
            bad=counts.bad,
            dropped=counts.dropped,
            lost=counts.lost,
            alert=f"bad line: {counts.last_bad}" if counts.last_bad else "",
        )

    def _append(self, spec: TopicSpec, appender: Appender, taken: Sequence[bytes], stopped: threading.Event) -> bool:
        """False if stopped before it was possible: these lines are dropped then."""
        metrics = self._parsed(taken)
        parts = appender.stage(spec, _batch(metrics, spec))
        position = SourcePosition(0, appender.position.end + sum(map(len, taken)))
        self._counts.lines += len(metrics)
        state = {"tally": self._settled().to_state(), "feed": self.spec.to_state()}
        done = append_when_possible(appender, parts, position, stopped, self._wait, **state)
        dropped = sum(map(lines_in, taken)) if done is None else done.dropped
        self._counts.lines -= dropped if done is not None else len(metrics)
        self._counts.dropped += dropped
        self._done += len(taken)
        return done is not None

    def _settled(self) -> Counts:
        """With what was dropped before it could be taken."""
        found, datagrams = Counts.from_state(self._counts.to_state()), self._datagrams
        if datagrams is not None:
            found.dropped += datagrams.dropped_lines
            found.lost = self._lost_before + datagrams.lost
        return found

    def _parsed(self, taken: Sequence[bytes]) -> list[Metric]:
        now, found = self._clock(), []
        for datagram in taken:
            for line in datagram.split(b"\n"):
                if not (plain := line.strip()):
                    continue
                try:
                    found += metrics_in(plain.decode(), now_us=now)
                except (BadMetric, UnicodeDecodeError) as error:
                    self._counts.bad += 1
                    why = str(error) if isinstance(error, BadMetric) else "it is not UTF-8"
                    self._counts.last_bad = f"{plain[:SHOWN].decode(errors='backslashreplace')!r}: {why}"
        return found

    def _wait(self, why: str) -> None:
        self._waiting = why


def _batch(metrics: Sequence[Metric], spec: TopicSpec) -> pa.RecordBatch:
    columns = zip(*metrics, strict=True) if metrics else [()] * len(COLUMNS)
    arrays = {
        field.name: pa.array(values, field.type)
        for field, values in zip(COLUMNS, columns, strict=True)
        if field.name in spec.schema.names
    }
    return to_batch(pa.table(arrays), spec.stored, topic=spec.name, required=spec.required)

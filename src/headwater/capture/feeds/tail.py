"""One run over files that grow.

1  Files are looked for: by the pattern, and by what an earlier run knew of them.
2  Whole lines after each file's offset are read; then it is made sure that it is still the same file.
3  Records, dead letters, the files' new offsets and the counts are one append.
4  Only then do the offsets count here.
A crash before 3 reads the same lines again; after it, goes on behind them. So each line is appended once.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.capture.appender import Appender
from headwater.capture.feeds.appending import PATIENCE_S, append_when_possible
from headwater.capture.feeds.counts import Counts
from headwater.capture.feeds.files import Growing, named_by
from headwater.capture.feeds.lines import COLUMNS, DEAD, SHOWN_BYTES, Bad, Lines, dead_letters, lines_of
from headwater.capture.feeds.spec import TAIL, FeedSpec, TailSettings, check_columns
from headwater.capture.feeds.watching import Watched
from headwater.capture.position import SourcePosition
from headwater.capture.status import CaptureStatus
from headwater.errors import BadCapture, BadLine
from headwater.log.protocol import Log, Part
from headwater.log.spec import TopicSpec
from headwater.log.topic import Topic

LOOK_S = 0.25
POLL_S = 0.05
BLOCK_BYTES = 1024 * 1024
ROUND_BYTES = 8 * 1024 * 1024
"""What is read of one file, and of all, for one append."""
FILE = "file."


@dataclass(frozen=True)
class Block:
    """What was read of a file, from its offset on: whole lines up to `end`, or what is left out."""

    file: Growing
    end: int
    seen: int
    head: tuple[int, int]
    data: bytes = b""
    skipping: bool = False
    bad: tuple[Bad, ...] = ()

    @property
    def state(self) -> dict[str, Any]:
        """The file's, once this is appended."""
        file = self.file
        return Growing(file.key, file.path, self.end, self.head, self.skipping).to_state()


class TailCapture:
    def __init__(self, spec: FeedSpec, log: Log) -> None:
        assert isinstance(spec.settings, TailSettings)
        self.spec = spec
        self.settings = spec.settings
        self._pattern = spec.url.removeprefix(TAIL)
        if not self._pattern:
            raise BadCapture(what="tail: names no files", do="Give a path or a pattern: tail:logs/*.log")
        self._log = log
        self._phase = "starting"
        self._waiting = ""
        self._behind: int | None = None
        self._counts = Counts()
        self._appender: Appender | None = None
        self._watched: Watched | None = None
        self._goals: dict[int, tuple[int, dict[str, int]]] = {}
        self._numbers = itertools.count(1)

    def topics(self) -> dict[str, TopicSpec]:
        into, partitions = self.spec.into, self.settings.partitions
        if isinstance(into, Topic):
            if self.settings.lines == "text":
                check_columns(into.spec, COLUMNS, "line")
            made = {into.name: into.spec}
        elif self.settings.lines == "json":
            what = f"which columns do the JSON lines of capture {self.spec.name!r} have?"
            raise BadCapture(what=what, do="Declare the topic, and say into=topic")
        else:
            made = {into: self._log.create(TopicSpec(into, COLUMNS, key=("file",), partitions=partitions))}
        if self.settings.bad_lines == "dead":
            (spec,) = made.values()
            dead = TopicSpec(f"{spec.name}.dead", DEAD, partitions=1)
            made[dead.name] = self._log.create(dead)
        return made

    def run(self, stopped: threading.Event) -> None:
        spec, *_ = self.topics().values()
        appender = self._appender = Appender(self._log, self.spec.name, patience_s=PATIENCE_S)
        state = appender.state
        self._counts = Counts.from_state(state.get("tally"))
        known = [Growing.from_state(key, found) for key, found in state.beginning(FILE).items()]
        at_end = self.settings.start == "end" and state.get("tally") is None
        watched = self._watched = Watched(self._pattern, known, at_end=at_end)
        try:
            looked = 0.0
            while not stopped.is_set():
                if time.monotonic() - looked >= LOOK_S:
                    self._look(watched, appender, stopped)
                    looked = time.monotonic()
                blocks = self._read(watched)
                if not blocks:
                    stopped.wait(POLL_S)
                elif not self._append(spec, appender, blocks, stopped):
                    return
        finally:
            watched.close()

    def goal(self) -> int:
        """A number under which the sizes of now are kept."""
        number = next(self._numbers)
        looks = self._watched.looks if self._watched is not None else 0
        self._goals[number] = looks, {key: size for key, (_, size) in named_by(self._pattern).items()}
        return number

    def reached(self, goal: int) -> bool:
        watched = self._watched
        looks, sizes = self._goals[goal]
        if self._phase != "reading" or watched is None or watched.looks < looks + 2:
            return False
        files = dict(watched.files)
        return all(
            key not in files or files[key].seen >= size or files[key].read_at_look > looks + 1
            for key, size in sizes.items()
        )

    def status(self) -> CaptureStatus:
        appender, watched, counts = self._appender, self._watched, self._counts
        bad = f"bad line: {counts.last_bad}" if counts.last_bad else ""
        return CaptureStatus(
            self.spec.name,
            self._phase,
            appender.rows if appender is not None else 0,
            position=f"{counts.lines} lines of {len(watched.files) if watched is not None else 0} files",
            lag_bytes=self._behind,
            when_slow=self.settings.when_slow,
            waiting=self._waiting,
            bad=counts.bad,
            dropped=counts.dropped,
            lost=counts.lost,
            alert=(watched.alert if watched is not None else "") or bad,
        )

    # --- the steps ---

    def _look(self, watched: Watched, appender: Appender, stopped: threading.Event) -> None:
        """Step 1. What the first look of all finds, and what is forgotten, is written down at once."""
        changes: dict[str, Any] = {FILE + key: None for key in watched.look()}
        if appender.state.get("tally") is None:
            changes |= {FILE + key: file.to_state() for key, file in watched.files.items()}
            changes |= {"tally": self._counts.to_state(), "feed": self.spec.to_state()}
        if changes:
            append_when_possible(appender, [], appender.position, stopped, self._wait, **changes)
        self._behind = watched.behind_bytes()
        self._phase = "reading"

    def _read(self, watched: Watched) -> list[Block]:
        """Step 2."""
        blocks, left = [], ROUND_BYTES
        for file in watched.to_read():
            if left <= 0:
                break
            if self.settings.when_slow == "drop_oldest" and file.size - file.offset > self.settings.buffer_bytes:
                blocks.append(self._dropped(file))
                continue
            data = file.read(max(BLOCK_BYTES, self.settings.line_bytes + 2))
            if data is None:
                self._counts.lost += file.known_bytes > file.offset  # something of it was never a record
                file.begin_again()
            elif (block := self._block(file, data)) is not None:
                blocks.append(block)
                left -= len(data)
        return blocks

    def _block(self, file: Growing, data: bytes) -> Block | None:
        begin, seen = file.offset, file.offset + len(data)
        if file.skipping:
            end = data.find(b"\n") + 1
            if end:
                return Block(file, begin + end, begin + end, file.head_after(data[:end]))
            return Block(file, seen, seen, file.head_after(data), skipping=True)
        if end := data.rfind(b"\n") + 1:
            return Block(file, begin + end, seen, file.head_after(data[:end]), data[:end])
        if len(data) > self.settings.line_bytes:
            bad = Bad(begin, data[:SHOWN_BYTES], f"it has more than {self.settings.line_bytes} bytes")
            return Block(file, seen, seen, file.head_after(data), skipping=True, bad=(bad,))
        file.seen = seen
        return None

    def _dropped(self, file: Growing) -> Block:
        """The oldest lines are passed by, up to the end of one."""
        assert file.descriptor is not None
        until, place, head, end = file.size - self.settings.buffer_bytes, file.offset, file.head, 0
        while not end and (data := os.pread(file.descriptor, BLOCK_BYTES, place)):
            least = max(0, until - 1 - place)
            end = data.find(b"\n", least) + 1 if least < len(data) else 0
            passed = data[: end or len(data)]
            head = file.head_after(passed) if place == file.offset else head
            self._counts.dropped += passed.count(b"\n")
            place += len(passed)
        return Block(file, place, place, head, skipping=not end)

    def _append(self, spec: TopicSpec, appender: Appender, blocks: Sequence[Block], stopped: threading.Event) -> bool:
        """Steps 3 and 4; False if stopped before."""
        parts: list[Part] = []
        taken: list[Block] = []
        stops: BadLine | None = None
        for whole in blocks:
            block, found, stops = self._lines(whole, spec)
            if found.bad and stops is None:
                letters = dead_letters(block.file.path, found.bad)
                parts.append(self._log.stage(f"{spec.name}.dead", 0, letters, producer=appender.producer))
            parts += appender.stage(spec, found.records)
            taken.append(block)
            self._counts.lines += found.records.num_rows
            if found.bad:
                self._counts.last_bad = f"{block.file.path}, byte {found.bad[-1].offset}: {found.bad[-1].why}"
            if stops is not None:
                break
            self._counts.bad += len(found.bad)
        position = SourcePosition(0, appender.position.end + sum(each.end - each.file.offset for each in taken))
        state: dict[str, Any] = {FILE + each.file.key: each.state for each in taken}
        state |= {"tally": self._counts.to_state(), "feed": self.spec.to_state()}
        done = append_when_possible(appender, parts, position, stopped, self._wait, **state)
        if done is None:
            return False
        self._counts.lines -= done.dropped
        self._counts.dropped += done.dropped
        for each in taken:
            each.file.advance(each.end, seen=each.seen, head=each.head, skipping=each.skipping)
        if stops is not None:
            raise stops
        return True

    def _lines(self, block: Block, spec: TopicSpec) -> tuple[Block, Lines, BadLine | None]:
        """The lines of a block; if one is to stop the capture, what comes before it, and the error."""
        file = block.file
        found = lines_of(block.data, file.path, file.offset, spec, self.settings)
        found = Lines(found.records, [*block.bad, *found.bad])
        if not found.bad or self.settings.bad_lines == "dead":
            return block, found, None
        bad = found.bad[0]
        before = block.data[: bad.offset - file.offset]
        shorter = Block(file, bad.offset, bad.offset, file.head_after(before), before)
        found = Lines(lines_of(before, file.path, file.offset, spec, self.settings).records, [bad])
        return shorter, found, BadLine(file=file.path, offset=bad.offset, topic=spec.name, why=bad.why)

    def _wait(self, why: str) -> None:
        self._waiting = why
        if self._watched is not None:
            self._behind = self._watched.behind_bytes()

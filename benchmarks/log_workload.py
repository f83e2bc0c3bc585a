"""What `log.py` and its peers are measured with: the records, the clocks, the writers and followers of both sides."""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = {"user_id": "int64", "page": "string", "at": "timestamp", "price": "float64", "country": "string"}
PARTITIONS = 4
BLOCK = 100_000
THREADS, PROCESSES = 8, 4
TAIL_PER_S = 200
STAGE_S = 600.0
"""No stage takes longer: what is not through by then has failed."""
SINGLES_S = 20.0
"""One-record appends end after this time, however many they are by then."""
SPAWN = multiprocessing.get_context("spawn")

Row = dict[str, Any]
Answer = TypeVar("Answer")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Sizes:
    rows: int
    rounds: int
    singles: int
    tail: int
    memory_bytes: int

    @property
    def block(self) -> int:
        return min(BLOCK, self.rows)


class Deadline:
    def __init__(self, what: str, seconds: float = STAGE_S) -> None:
        self._what, self._seconds = what, seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{self._what}: not through after {self._seconds:g} s")
        return left


class Records:
    """A few blocks of clicks, used over and over: further apart than any compression looks back."""

    def __init__(self, sizes: Sizes) -> None:
        self._chance = np.random.default_rng(11)
        self.blocks = [self._block(sizes.block) for _ in range(4)]
        self._times = max(1, round(sizes.rows / sizes.block))
        self.rows = self._times * sizes.block
        self.sum = sum(pc.sum(block["user_id"]).as_py() for block in self)

    def __iter__(self) -> Iterator[pa.Table]:
        return itertools.islice(itertools.cycle(self.blocks), self._times)

    def again(self, blocks: list[list[Row]]) -> Iterator[Row]:
        """The same rows in the same order, from the blocks in another form."""
        return itertools.chain.from_iterable(itertools.islice(itertools.cycle(blocks), self._times))

    def some(self, count: int) -> list[Row]:
        rows: list[Row] = self.blocks[0].slice(0, count).to_pylist()
        return rows

    def _block(self, rows: int) -> pa.Table:
        chance = self._chance
        at = pa.array(np.arange(rows) * 1000 + 1_767_225_600_000_000).cast(pa.timestamp("us", "UTC"))
        return pa.table(
            {
                "user_id": chance.integers(0, 100_000, rows),
                "page": np.char.add("/product/", chance.integers(0, 20_000, rows).astype(str)),
                "at": at,
                "price": chance.integers(100, 100_000, rows) / 100,
                "country": np.array([f"c{n:02}" for n in range(60)])[chance.integers(0, 60, rows)],
            }
        )


# --- measuring ----------------------------------------------------------------------------------------


class Rates:
    """Rows a second by what was done, of several rounds; the median counts."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._found: dict[str, list[float]] = {}

    def time(self, what: str, act: Callable[..., Answer], *arguments: Any, **options: Any) -> Answer:
        start = time.monotonic()
        answer = act(*arguments, **options)
        self._found.setdefault(what, []).append(self._rows / (time.monotonic() - start))
        return answer

    def medians(self) -> dict[str, Any]:
        return {what: statistics.median(rates) for what, rates in self._found.items()}


@dataclass(frozen=True)
class Span:
    """How many appends one writer made, from when to when (by the clock that processes share)."""

    count: int
    start: float
    end: float


def write_singles(append: Callable[[Row], object], rows: list[Row], count: int) -> Span:
    start, done = time.time(), 0
    for row in itertools.islice(itertools.cycle(rows), count):
        append(row)
        done += 1
        if time.time() - start > SINGLES_S:
            break
    return Span(done, start, time.time())


def singles_per_s(spans: Iterable[Span]) -> float:
    all_of_them = list(spans)
    took = max(span.end for span in all_of_them) - min(span.start for span in all_of_them)
    return sum(span.count for span in all_of_them) / took


def tail_latency(
    append: Callable[[Row], object], rows: list[Row], count: int, follower: Callable[[], Child]
) -> dict[str, float]:
    """From before an append to a follower in another process that has the record in hand, at an even pace.

    Records carry the time at which they were sent. Those with users below zero warm up: the follower is ready when the
    first has come, the others get the rest of both processes going.
    """

    def send(user: int) -> None:
        append({**rows[user % len(rows)], "user_id": user, "at": datetime.now(UTC)})

    warm_up = max(50, count // 10)
    send(-1)
    following = follower().ready()
    start = time.monotonic()
    for sent, user in enumerate(range(-warm_up, count)):
        time.sleep(max(0.0, start + sent / TAIL_PER_S - time.monotonic()))
        send(user)
    p50, p99 = np.percentile(np.array(following.last_word()) * 1000, [50, 99])
    return {"p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2)}


def follow(arrivals: Iterator[list[tuple[int, float]]], count: int, pipe: Connection) -> None:
    """The follower's side: (user, seconds on the way) of the records as they come, until all have come."""
    deadline, ready = Deadline("following"), False
    took: list[float] = []
    while len(took) < count:
        arrived = next(arrivals)
        if arrived and not ready:
            pipe.send("ready")
            ready = True
        took += [seconds for user, seconds in arrived if user >= 0]
        deadline.left()
    pipe.send(took)


def disk_bytes(folders: Iterable[Path]) -> int:
    """Bytes taken, not lengths: Kafka's index files are long and sparse."""
    return sum(file.stat().st_blocks * 512 for folder in folders for file in folder.rglob("*") if file.is_file())


class Child:
    """A function in a process of its own. It gets its end of a pipe last, and says "ready" when it is warm."""

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=work, args=(*arguments, theirs), daemon=True)
        self._process.start()
        theirs.close()  # so that a child that dies is heard at once: EOFError
        self._name = work.__name__

    def ready(self) -> Child:
        assert self.hear() == "ready"
        return self

    def tell(self, word: str) -> None:
        self._pipe.send(word)

    def hear(self) -> Any:
        if not self._pipe.poll(STAGE_S):
            self._process.kill()
            raise TimeoutError(f"{self._name}: nothing heard for {STAGE_S:g} s")
        return self._pipe.recv()

    def last_word(self) -> Any:
        word = self.hear()
        self._process.join(30)
        return word


def told(figures: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:,.0f}" for name, value in figures.items())

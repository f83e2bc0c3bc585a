"""The pieces of a first snapshot, read in parallel: workers read and stage, who asks appends, one piece at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TypeVar

from headwater.capture.ranges import Piece

AHEAD = 2

Read = TypeVar("Read")
Reader = AbstractContextManager[Callable[[Piece], Read]]
"""Entered and left by the worker that reads with it."""


def read_in_parallel(
    pieces: Sequence[Piece], readers: Sequence[Reader[Read]], stopped: threading.Event
) -> Generator[tuple[int, Read], None, None]:
    """Each piece that is not done, by its number, with what was read of it, as they come; a worker a reader.

    Workers are at most `AHEAD` pieces each ahead of who asks, whose log may be slower than the database: what was read
    is in memory. When it is stopped, it ends after whatever is being read. The first failure is raised once all workers
    have ended; nothing comes after it.
    """
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number, piece in enumerate(pieces):
        if not piece.done:
            left.put(number)
    results: queue.SimpleQueue[tuple[int, Read] | BaseException | None] = queue.SimpleQueue()
    given_up = threading.Event()
    room = threading.Semaphore(AHEAD * len(readers))

    def work(reader: Reader[Read]) -> None:
        try:
            with reader as read:
                while room.acquire() and not stopped.is_set() and not given_up.is_set():
                    try:
                        number = left.get_nowait()
                    except queue.Empty:
                        break
                    results.put((number, read(pieces[number])))
        except BaseException as error:  # noqa: BLE001 whatever it is, the thread that waits raises it
            results.put(error)
        finally:
            room.release()  # it is not read with; and another worker may wait for it
            results.put(None)

    failure: BaseException | None = None
    with ThreadPoolExecutor(max(1, len(readers)), thread_name_prefix="snapshot") as pool:
        try:
            for reader in readers:
                pool.submit(work, reader)
            ended = 0
            while ended < len(readers):
                result = results.get()
                if result is None:
                    ended += 1
                elif isinstance(result, BaseException):
                    failure = failure or result
                    given_up.set()
                else:
                    if failure is None:
                        yield result
                    room.release()
        finally:
            given_up.set()
            room.release(AHEAD * max(1, len(readers)))  # who waits for room sees that
    if failure is not None:
        raise failure

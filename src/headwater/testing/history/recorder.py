"""Writing a history: a file a process, a line an event, each with one write at the end of the file.

What was written is with the kernel: a process that is killed has lost at most the line it was about to write. If that
is an answer, the operation is unknown; if a question, nobody has been asked yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError, StorageFailed
from headwater.testing.history.events import Event, Op, Type


class Answer:
    """What is to be told of an operation once it is done: fields of an `Event`."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}

    def __call__(self, **fields: Any) -> None:
        self.fields.update(fields)


class Recorder:
    def __init__(self, file: Path, process: str) -> None:
        self.process = process
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    @contextmanager
    def operation(self, op: Op, **asked: Any) -> Iterator[Answer]:
        """Records the question, then the answer or what was raised. Our errors say that nothing was done, but for
        `StorageFailed`; of any other exception nobody knows."""
        question = Event(self.process, op, "invoke", time.monotonic_ns(), **asked)
        self._write(question)
        answer = Answer()
        try:
            yield answer
        except BaseException as error:
            refused = isinstance(error, HeadwaterError) and not isinstance(error, StorageFailed)
            self._tell(question, "fail" if refused else "info", error=type(error).__name__)
            raise
        self._tell(question, "ok", **answer.fields)

    def close(self) -> None:
        os.close(self._file)

    def _tell(self, question: Event, outcome: Type, **told: Any) -> None:
        self._write(replace(question, type=outcome, time=time.monotonic_ns(), **told))

    def _write(self, event: Event) -> None:
        os.write(self._file, event.to_json().encode() + b"\n")

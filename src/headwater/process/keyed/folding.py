"""Running a user's reducer over the records of many keys: the loop, and what becomes of an error in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NoReturn

import numpy as np
import pyarrow as pa

from headwater.errors import FunctionFailed
from headwater.process.functions import blamed
from headwater.process.keyed.bykey import Mask
from headwater.process.keyed.deadletters import SCHEMA, DeadLetter, to_table
from headwater.process.keyed.expiry import NEVER
from headwater.process.keyed.fitting import Fitting, Unfit
from headwater.process.keyed.generated import Row, rows_maker
from headwater.process.keyed.records import partition_and_offset
from headwater.process.keyed.values import python_columns


@dataclass(frozen=True)
class Folded:
    """By key: its row (None if it has none yet), its newest event time, whether any record was taken."""

    states: list[Row | None]
    newest: list[int]
    changed: Mask
    dead: pa.Table | None


@dataclass
class Folding:
    function: Callable[..., Any]
    fitting: Fitting
    initial: Row
    by: Literal["record", "arrow"]
    on_error: Literal["stop", "dead"]
    retain: int | None
    pipeline: str
    topic: str
    letters: list[DeadLetter] = field(default_factory=list)

    def run(
        self,
        *,
        records: pa.Table,
        position: list[int],
        starts: list[int],
        keys: pa.Table,
        times: list[int] | None,
        states: list[Row | None],
        newest: list[int],
    ) -> Folded:
        """`records` lie key by key, each key from its start on, in the order of the log; the rest is by key."""
        self._records, self._position, self._keys = records, position, keys
        ends = [*starts[1:], records.num_rows] if starts else []
        each = self._each_record if self.by == "record" else self._each_table
        after, greatest, changed = each(list(zip(starts, ends, strict=True)), times, states, newest)
        dead = to_table(self.letters, self.topic) if self.letters else SCHEMA.empty_table()
        return Folded(after, greatest, np.array(changed, np.bool_), dead if self.on_error == "dead" else None)

    def _each_record(
        self, ranges: list[tuple[int, int]], times: list[int] | None, states: list[Row | None], newest: list[int]
    ) -> tuple[list[Row | None], list[int], list[bool]]:
        function, fitted, copied, initial, retain = (
            self.function,
            self.fitting.fitted,
            self.fitting.copied,
            self.initial,
            self.retain,
        )
        make = rows_maker(tuple(self._records.schema.names))
        rows = make(zip(*python_columns(self._records), strict=True))
        after: list[Row | None] = []
        greatest: list[int] = []
        changed: list[bool] = []
        for number, (start, end) in enumerate(ranges):
            known, time, taken = states[number], newest[number], False
            for place, record in enumerate(islice(rows, end - start), start):
                state = initial if known is None else known
                if times is not None and retain is not None and time != NEVER and times[place] > time + retain:
                    state = initial
                try:
                    known = fitted(function(copied(state), record))
                except Exception as error:  # noqa: BLE001  (whatever the user's function raises)
                    self._failed(error, number, place, place + 1)
                    continue
                taken = True
                if times is not None:
                    time = times[place] if state is initial else max(time, times[place])
            after.append(known)
            greatest.append(time)
            changed.append(taken)
        return after, greatest, changed

    def _each_table(
        self, ranges: list[tuple[int, int]], times: list[int] | None, states: list[Row | None], newest: list[int]
    ) -> tuple[list[Row | None], list[int], list[bool]]:
        after: list[Row | None] = []
        greatest: list[int] = []
        changed: list[bool] = []
        for number, (start, end) in enumerate(ranges):
            known, time, taken = states[number], newest[number], False
            for begin, stop, restarts, last in _segments(start, end, times, time, self.retain):
                state = self.initial if known is None or restarts else known
                try:
                    result = self.function(self.fitting.copied(state), self._records.slice(begin, stop - begin))
                    known = self.fitting.fitted(result)
                except Exception as error:  # noqa: BLE001  (whatever the user's function raises)
                    self._failed(error, number, begin, stop)
                    continue
                taken, time = True, last
            after.append(known)
            greatest.append(time)
            changed.append(taken)
        return after, greatest, changed

    def _failed(self, error: Exception, key: int, start: int, end: int) -> None:
        told = str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
        trace = blamed(error, self.function, own_file=__file__) if not isinstance(error, Unfit) else ()
        if self.on_error == "stop":
            self._stop(error, told, trace, key, start, end)
        at = f" ({trace[-1]})" if trace else ""
        for place in range(start, end):
            record = self._records.slice(place, 1).to_pylist()[0]  # not the dict that the function may have changed
            self.letters.append(DeadLetter(record, told + at, self._position[place]))

    def _stop(self, error: Exception, told: str, trace: tuple[str, ...], key: int, start: int, end: int) -> NoReturn:
        partition, offset = partition_and_offset(self._position[start])
        of = self._keys.slice(key, 1).to_pylist()[0]
        raise FunctionFailed(
            pipeline=self.pipeline,
            key=", ".join(f"{name}={value!r}" for name, value in of.items()),
            topic=self.topic,
            partition=partition,
            offset=offset,
            last_offset=partition_and_offset(self._position[end - 1])[1],
            error=told,
            trace=trace,
        ) from error


def _segments(
    start: int, end: int, times: list[int] | None, newest: int, retain: int | None
) -> list[tuple[int, int, bool, int]]:
    """Where the fold begins anew: (start, end, whether it does, the newest event time after it), in order."""
    if times is None or retain is None:
        return [(start, end, False, newest)]
    found = []
    begin, restarts, time = start, False, newest
    for place in range(start, end):
        if time != NEVER and times[place] > time + retain:
            if place > begin:
                found.append((begin, place, restarts, time))
            begin, restarts, time = place, True, times[place]
        time = max(time, times[place])
    return [*found, (begin, end, restarts, time)]

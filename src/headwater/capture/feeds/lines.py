"""Whole lines of a file become records of a topic: as text, or as JSON objects that fill its columns.

Where the topic has columns `file` and `offset` (of the line's first byte), they are filled too. A line ends with a
newline, before which a carriage return is left out; a line that is empty is none. What does not fit is said for each
line alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.capture.feeds.spec import TailSettings
from headwater.errors import BadRecord
from headwater.log.spec import TopicSpec
from headwater.records import schema_of, to_batch

COLUMNS = schema_of({"file": "string", "offset": "int64", "line": "string"})
DEAD = schema_of({"file": "string", "offset": "int64", "line": "string", "error": "string"})
SHOWN_BYTES = 64 * 1024
"""How much of a bad line is kept."""


@dataclass(frozen=True)
class Bad:
    offset: int
    line: bytes
    why: str


@dataclass(frozen=True)
class Lines:
    records: pa.RecordBatch
    bad: list[Bad]


def lines_of(block: bytes, path: str, offset: int, spec: TopicSpec, settings: TailSettings) -> Lines:
    """`block` is whole lines of the file at `path`, which begin at `offset`."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
    starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    bad: list[Bad] = []
    told: list[tuple[int, str]] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        line = block[start:end].removesuffix(b"\r")
        if len(line) > settings.line_bytes:
            bad.append(Bad(offset + start, line[:SHOWN_BYTES], f"it has more than {settings.line_bytes} bytes"))
        elif line:
            try:
                told.append((offset + start, line.decode()))
            except UnicodeDecodeError:
                bad.append(Bad(offset + start, line, "it is not UTF-8"))
    if settings.lines == "text":
        columns = {
            "file": [path] * len(told),
            "offset": [place for place, _ in told],
            "line": [line for _, line in told],
        }
        chosen = {name: values for name, values in columns.items() if name in spec.schema.names}
        table = pa.table(chosen, schema=pa.schema([COLUMNS.field(name) for name in chosen]))
        return Lines(to_batch(table, spec.stored, topic=spec.name, required=spec.required), bad)
    rows, unread = _objects(told, path, spec)
    records, unfit = _fitting(rows, spec)
    return Lines(records, sorted([*bad, *unread, *unfit], key=lambda each: each.offset))


Row = tuple[int, str, dict[str, Any]]
"""Where the line begins, the line, and what it says."""


def _objects(told: Sequence[tuple[int, str]], path: str, spec: TopicSpec) -> tuple[list[Row], list[Bad]]:
    rows, bad = [], []
    for place, line in told:
        try:
            said = json.loads(line)
            why = "" if isinstance(said, dict) else f"it is a {type(said).__name__}, not an object"
        except (ValueError, RecursionError) as error:
            said, why = {}, f"it is not JSON: {error}"
        if why:
            bad.append(Bad(place, line.encode(), why))
        else:
            own = {name: value for name, value in (("file", path), ("offset", place)) if name in spec.schema.names}
            rows.append((place, line, {**own, **said}))
    return rows, bad


def _fitting(rows: Sequence[Row], spec: TopicSpec) -> tuple[pa.RecordBatch, list[Bad]]:
    """All at once, as nearly always; else one by one, to find those that do not fit."""

    def batch(some: Sequence[Row]) -> pa.RecordBatch:
        return to_batch([row for _, _, row in some], spec.stored, topic=spec.name, required=spec.required)

    try:
        return batch(rows), []
    except BadRecord:
        fit: list[Row] = []
        bad: list[Bad] = []
        for each in rows:
            try:
                batch([each])
            except BadRecord as error:
                where = f"column {error.column!r}: " if error.column is not None else ""
                bad.append(Bad(each[0], each[1].encode(), where + error.why))
            else:
                fit.append(each)
        return batch(fit), bad


def dead_letters(path: str, bad: Sequence[Bad]) -> pa.RecordBatch:
    rows = [
        {
            "file": path,
            "offset": each.offset,
            "line": each.line[:SHOWN_BYTES].decode(errors="backslashreplace"),
            "error": each.why,
        }
        for each in bad
    ]
    return pa.RecordBatch.from_pylist(rows, DEAD)

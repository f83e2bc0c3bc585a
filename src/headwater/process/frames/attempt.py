"""A user's Python function, record by record, in which one bad record does not stop the pipeline.

A record on which the function raises, or whose result does not fit the columns, becomes one row with `_error` (what
happened, and the line of the user's code) and `_record` (the record as it came, as JSON text), every other column null.
The sink puts such rows into the dead-letter topic. A record fails as a whole: of a list of results in which one does
not fit, none is kept.
"""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from headwater.errors import BadRecord
from headwater.process.frames.types import arrow_schema, spark_schema
from headwater.records import Columns, schema_of, to_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ERROR, RECORD = "_error", "_record"
Record: TypeAlias = "dict[str, Any]"
Function: TypeAlias = "Callable[[Record], Mapping[str, Any] | Sequence[Mapping[str, Any]] | None]"
_MOST_TEXT = 4000
"""Characters of an error kept: some libraries put a whole document into a message."""


def attempt(frame: DataFrame, function: Function, columns: Columns) -> DataFrame:
    """The frame of what `function` makes of each record: a dict, None (nothing), or a list of dicts.

    `columns` are the output's, by our type names; a column missing in a dict is null, an unknown one is an error. The
    function runs in Spark's Python workers, possibly several times on a record, so what it does outside must bear
    repetition. A watermark does not pass through Python: call `event_time` on the result.
    """
    ours = schema_of(columns)
    told = pa.schema([*ours, (ERROR, pa.string()), (RECORD, pa.string())])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield attempted(batch, function, ours)

    return frame.mapInArrow(run, spark_schema(told))


def attempted(batch: pa.RecordBatch, function: Function, ours: pa.Schema) -> pa.RecordBatch:
    """One batch's results in `ours`, as it travels to Spark, then `_error` and `_record`. Failures stand last."""
    results: list[list[Mapping[str, Any]]] = []
    failed: dict[int, str] = {}
    for number, record in enumerate(batch.to_pylist()):
        try:
            results.append(_listed(function(record)))
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises is told, not thrown
            failed[number] = _told(error)
            results.append([])
    try:
        fit = to_batch([row for rows in results for row in rows], ours, topic="")
    except BadRecord:
        failed |= _unfit(results, ours)
        fit = to_batch([row for i, rows in enumerate(results) if i not in failed for row in rows], ours, topic="")
    travels = arrow_schema(spark_schema(ours))
    good = pa.Table.from_batches([fit]).cast(travels)
    numbers = sorted(failed)
    # From the batch again: the function may have changed the dict before it raised.
    records = batch.take(pa.array(numbers, pa.int64())).to_pylist()
    columns = [pa.concat_arrays([*column.chunks, pa.nulls(len(numbers), column.type)]) for column in good.itercolumns()]
    none = pa.nulls(good.num_rows, pa.string())
    errors = pa.array([failed[number] for number in numbers], pa.string())
    originals = pa.array([json.dumps(r, default=_plain, ensure_ascii=False) for r in records], pa.string())
    columns += [pa.concat_arrays([none, errors]), pa.concat_arrays([none, originals])]
    return pa.RecordBatch.from_arrays(columns, names=[*ours.names, ERROR, RECORD])


def _listed(result: Any) -> list[Mapping[str, Any]]:
    if result is None:
        return []
    if isinstance(result, Mapping):
        return [result]
    if isinstance(result, list | tuple) and all(isinstance(row, Mapping) for row in result):
        return list(result)
    raise TypeError(f"the function returned {type(result).__name__}; a dict, None or a list of dicts was expected")


def _unfit(results: list[list[Mapping[str, Any]]], ours: pa.Schema) -> dict[int, str]:
    """Which records' results do not fit the columns, and why: one by one, now that it is known that some do not."""
    found = {}
    for number, rows in enumerate(results):
        try:
            to_batch(rows, ours, topic="")
        except BadRecord as error:
            found[number] = f"the result does not fit: column {error.column!r}: {error.why}"[:_MOST_TEXT]
    return found


def _told(error: Exception) -> str:
    """`ValueError: message (shop.py, line 12: return 1 / x)`. The first frame below ours is the user's function; the
    last one in the same file is the line to look at."""
    text = "".join(traceback.format_exception_only(error)).strip()[:_MOST_TEXT]
    frames = traceback.extract_tb(error.__traceback__)[1:]
    theirs = [frame for frame in frames if frame.filename == frames[0].filename]
    if not theirs or theirs[-1].filename == __file__:
        return text
    last = theirs[-1]
    return f"{text} ({last.filename}, line {last.lineno}" + (f": {last.line})" if last.line else ")")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)

"""What a user's function returned, as its columns say: checked, and exactly as it would come back from state.

A value that is kept and read again in the next batch must be the same as one that is handed on within a batch, or the
answer would depend on where batches end. So a 1 in a column of floats becomes 1.0 at once, a time becomes one in UTC.
"""

from __future__ import annotations

import copy

import pyarrow as pa

from headwater.errors import BadRecord
from headwater.process.keyed.generated import Row, plain_row
from headwater.process.keyed.values import python_columns
from headwater.records import to_batch


class Unfit(Exception):
    """Internal: a result that the columns do not allow; its text says which column and why."""


class Fitting:
    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._names = set(columns.names)
        self._plain = plain_row(columns)
        self._nested = any(pa.types.is_nested(field.type) for field in columns)

    def copied(self, row: Row) -> Row:
        """A copy that can be changed, in any depth, without changing the row."""
        return copy.deepcopy(row) if self._nested else dict(row)

    def fitted(self, result: object) -> Row:
        """A row of its own, whatever the function does later with what it returned; or `Unfit`."""
        if not isinstance(result, dict):
            raise Unfit(f"the function returned {type(result).__name__}, not a dict with {self._told}")
        return self._plain(result) or self._converted(result)

    def _converted(self, result: Row) -> Row:
        if result.keys() != self._names:
            self._refuse_names(result)
        try:
            batch = to_batch([result], self._columns, topic="")
        except BadRecord as error:
            raise Unfit(f"column {error.column!r}: {error.why}") from None
        values = python_columns(pa.Table.from_batches([batch]))
        return {name: value for name, (value,) in zip(self._columns.names, values, strict=True)}

    def _refuse_names(self, result: Row) -> None:
        missing = [name for name in self._columns.names if name not in result]
        odd = [name for name in result if name not in self._names]
        raise Unfit(
            f"column {missing[0]!r} is missing in what the function returned"
            if missing
            else f"column {odd[0]!r} is not one of {self._told}"
        )

    @property
    def _told(self) -> str:
        return ", ".join(f"{field.name}: {field.type}" for field in self._columns)

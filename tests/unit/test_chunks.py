"""What a chunk holds: its records, and not a byte of others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.log.embedded.chunks import to_file, to_message

NEIGHBOUR = "erika@example.org"
KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "string": (pa.string(), "max", NEIGHBOUR),
    "binary": (pa.binary(), b"max", NEIGHBOUR.encode()),
    "list": (pa.list_(pa.string()), ["max"], [NEIGHBOUR]),
    "struct": (pa.struct({"name": pa.string()}), {"name": "max"}, {"name": NEIGHBOUR}),
    "map": (pa.map_(pa.string(), pa.string()), [("name", "max")], [("name", NEIGHBOUR)]),
}


@pytest.mark.parametrize("write", [to_message, to_file])
@pytest.mark.parametrize("kind", KINDS)
def test_a_slice_rests_without_its_neighbours(kind: str, write: Any) -> None:
    """Arrow pads what it writes of a slice with the bytes that follow."""
    typed, own, neighbour = KINDS[kind]
    column = pa.array([neighbour, own, neighbour, own], typed)
    batch = pa.RecordBatch.from_arrays([column], ["value"])
    assert b"erika@ex" in bytes(batch.slice(1, 1).serialize()), "which is why"
    for start, rows in ((1, 1), (3, 1)):
        assert b"erika@ex" not in bytes(write(batch.slice(start, rows)))
    head = pa.RecordBatch.from_arrays([column.slice(1)], ["value"]).slice(0, 1)
    assert b"erika@ex" not in bytes(write(head))

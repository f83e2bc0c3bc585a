"""Rows of `attempt` that have an error become dead letters, the others go on."""

from __future__ import annotations

import pyarrow as pa

from headwater.process.frames.sink import _apart


def test_rows_with_an_error_are_told_apart() -> None:
    batch = pa.record_batch(
        {"n": [1, None], "_error": pa.array([None, "ValueError: no"]), "_record": pa.array([None, '{"n": "x"}'])}
    )
    good, dead = _apart(batch)
    assert good.to_pylist() == [{"n": 1}]
    assert dead is not None
    nowhere = {"topic": None, "partition": None, "offset": None}
    assert dead.to_pylist() == [{"record": '{"n": "x"}', "error": "ValueError: no", **nowhere}]

"""Records as operators see them: the user's columns, and where in the log each one stands."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.process.keyed.fixed import Ints
from headwater.records import OFFSET, PARTITION

POSITION = "_position"
"""Partition and offset in one number: ascending in the order of the log within a partition."""
_SHIFT = 48  # 281 trillion records in a partition


def positions(records: pa.Table) -> Ints:
    partition: Ints = records[PARTITION].cast(pa.int64()).to_numpy()
    offset: Ints = records[OFFSET].to_numpy()
    return (partition << np.int64(_SHIFT)) | offset


def partition_and_offset(position: int) -> tuple[int, int]:
    return position >> _SHIFT, position & ((1 << _SHIFT) - 1)


def user_columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if not field.name.startswith("_")])

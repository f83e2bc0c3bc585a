"""One row a key, replaced as a whole: what `latest` and `fold` do with tables of such rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.process.keyed.arrangement import HASH, Arrangement
from headwater.process.keyed.bykey import Mask, same_rows, taken


def where(rows: pa.Table, mask: Mask) -> pa.Table:
    return taken(rows, np.flatnonzero(mask))


def with_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    """The table with other values in a column that it has."""
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))


def write(arrangement: Arrangement, rows: pa.Table, mask: Mask) -> None:
    """Make these the rows of their keys; they have their hashes, and are sorted by them."""
    chosen = where(rows, mask)
    arrangement.add(chosen, chosen[HASH].to_numpy())


def changes(
    columns: pa.Schema, before: pa.Table, was_shown: Mask, now: pa.Table, is_shown: Mask
) -> tuple[pa.Table, pa.Table]:
    """Of rows that were or are shown, those that leave and those that come; one that stays as it is does neither."""
    differs = np.ones(len(was_shown), np.bool_)
    both = np.flatnonzero(was_shown & is_shown)
    differs[both] = ~same_rows(*(taken(rows.select(columns.names), both) for rows in (now, before)))
    return where(before, differs & was_shown), where(now, differs & is_shown)

"""A key as a user gives it, read as the types of the view's key columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headwater.errors import BadKey
from headwater.serve.store import Served


def typed_key(served: Served, given: Sequence[Any]) -> pa.Table:
    """One row of the key columns, or `BadKey`. Text is read as what it stands for, as it comes in an address."""
    refused = BadKey(view=served.view, key=served.key, given=tuple(given))
    if not served.key or len(given) != len(served.key):
        raise refused
    columns = {}
    for name, value in zip(served.key, given, strict=True):
        kind = served.schema.field(name).type
        try:
            one = pa.scalar(value).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            raise refused from None
        columns[name] = pa.array([one.as_py()], kind)
    return pa.table(columns)

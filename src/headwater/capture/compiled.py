"""Functions that run as machine code over whole buffers, without the interpreter's lock; compiled once, kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., Any])
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.int32]

NULL, UNCHANGED = -1, -2
"""Lengths that are none: a null, and a large value that the server did not send because it has not changed."""


def compiled(function: Function) -> Function:
    return cast(Function, numba.njit(cache=True, nogil=True, boundscheck=False)(function))

"""The user's own line in front of an error, whether it was raised here or told by Spark."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headwater.errors import BadFunction, HeadwaterError

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')


@contextmanager
def told_with_line(function: Callable[..., Any]) -> Iterator[None]:
    """What the function raises when it is called becomes an error of ours that begins with its line."""
    try:
        yield
    except HeadwaterError:
        raise
    except Exception as error:
        file = function.__code__.co_filename
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        where = f"{file}, line {own[-1].lineno}: {own[-1].line}" if own else f"{file}: {function.__name__}"
        raise BadFunction(where=where, why=_first_line(error)) from error


def line_in(told: str, file: str | None) -> str | None:
    """Of the Python traceback in Spark's words, the user's own last line."""
    if file is None:
        return None
    found = [match for match in _FRAME.finditer(told) if match["file"] == file]
    if not found:
        return None
    number = int(found[-1]["line"])
    return f"{file}, line {number}: {linecache.getline(file, number).strip()}"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    first = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first}"

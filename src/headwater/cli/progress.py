"""A progress bar for people who watch; nothing for programs that do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, *, as_json: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Gives what is to be called with bytes done and bytes in all; None if standard error is no terminal, or JSON was
    asked for. It is on standard error, and gone when the act is over, whichever way it ended."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)

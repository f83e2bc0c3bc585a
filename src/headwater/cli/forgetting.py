"""`headwater topic forget --everywhere`: what is told while it goes on, and its report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from headwater.app import App
from headwater.cli.output import write_rows
from headwater.cli.status import StatusLine
from headwater.forgetting import forget
from headwater.forgotten import Report
from headwater.log.protocol import Log

SAY_S = 2.0


def forget_everywhere(
    where: App | Log, topic: str, key: Mapping[str, Any], *, from_retained: bool, dry_run: bool, as_json: bool
) -> None:
    say = (lambda text: None) if as_json else StatusLine("forgetting").say
    report = forget(
        where,
        topic,
        keys=[key],
        from_retained=from_retained,
        dry_run=dry_run,
        say=say,
        advance=_percent(say),
    )
    write_report(report, as_json=as_json)


def _percent(say: Callable[[str], None]) -> Callable[[int, int], None]:
    """Now and then, how much of a topic has been gone through."""
    said_at = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at > SAY_S:
            said_at = time.monotonic()
            say(f"{100 * done // max(1, total)} % of {total} bytes")

    return advance


def write_report(report: Report, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(report.as_json()) + "\n")
        return
    tables = {
        "Would be removed" if report.dry_run else "Removed": report.removed,
        "Would be built again from the log" if report.dry_run else "Built again from the log": report.built_again,
        "Remains": report.remains,
    }
    for title, rows in tables.items():
        if rows:
            sys.stdout.write(f"{title}:\n")
            sys.stdout.flush()
            write_rows([asdict(row) for row in rows], as_json=False)

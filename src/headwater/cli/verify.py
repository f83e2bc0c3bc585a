"""`headwater verify`: is every byte of the log what was written?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

import typer

from headwater.cli.existing import existing
from headwater.cli.output import LOG, Json, LogUrl
from headwater.cli.progress import progress_bar
from headwater.log.embedded.verify import Verdict
from headwater.log.embedded.verify import verify as check

DAMAGED = 7


def verify(log: LogUrl = LOG, as_json: Json = False) -> None:
    """Check a log in full, while it is in use: checksums, records, offsets. Exit code 7 if it is damaged."""
    folder = existing(log)
    with progress_bar("verifying", as_json=as_json) as advance:
        verdict = check(folder, advance=advance)
    if as_json:
        sys.stdout.write(json.dumps(_plain(verdict)) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(verdict)))
    if not verdict.sound:
        raise typer.Exit(DAMAGED)


def _plain(verdict: Verdict) -> dict[str, Any]:
    told = {**asdict(verdict), "sound": verdict.sound, "position": str(verdict.position)}
    return {name: told[name] for name in ("sound", *(name for name in told if name != "sound"))}


def _lines(verdict: Verdict) -> list[str]:
    lines = [f"{'damage' if finding.serious else 'note'}: {finding}" for finding in verdict.findings]
    checked = (
        f"{verdict.records} records in {verdict.chunks} chunks, {verdict.size} bytes, up to append {verdict.number}"
    )
    if verdict.sound:
        return [*lines, f"sound: {checked}", f"position {verdict.position}", f"digest {verdict.digest}"]
    return [
        *lines,
        f"DAMAGED: {checked} could be read. Restore what is named above from a backup; nothing was changed.",
    ]

"""`headwater verify`: is every byte of the log what was written?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.existing import existing
from headwater.cli.output import LOG, Json, LogUrl
from headwater.cli.progress import progress_bar
from headwater.errors import UsageError
from headwater.log.embedded.verify import Verdict
from headwater.log.embedded.verify import verify as check

DAMAGED = 7


def verify(
    log: LogUrl = LOG,
    views: Annotated[bool, typer.Option("--views", help="Compute the views of --app anew and compare.")] = False,
    app: Annotated[Path | None, typer.Option(envvar="HEADWATER_APP", help="The file that declares the app.")] = None,
    as_json: Json = False,
) -> None:
    """Check a log in full, while it is in use: checksums, records, offsets. Exit code 7 if it is damaged.

    With --views, instead: each SQL view of an app, computed by DuckDB over the log as far as the view covers it, and
    compared with the rows that the view has. The inputs are read into memory.
    """
    if views:
        if app is None:
            raise UsageError(what="verify --views needs the app", do="Say --app FILE")
        _verify_views(app, as_json=as_json)
        return
    folder = existing(log)
    with progress_bar("verifying", as_json=as_json) as advance:
        verdict = check(folder, advance=advance)
    if as_json:
        sys.stdout.write(json.dumps(_plain(verdict)) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(verdict)))
    if not verdict.sound:
        raise typer.Exit(DAMAGED)


def _verify_views(file: Path, *, as_json: bool) -> None:
    from headwater.cli.run import load_app

    with load_app(file) as app:
        audited = app.audit()
    if as_json:
        sys.stdout.write(
            "".join(json.dumps({"sound": each.sound, **asdict(each)}, default=str) + "\n" for each in audited)
        )
    else:
        for each in audited:
            told = "as DuckDB computes it" if each.sound else "NOT as DuckDB computes it"
            sys.stdout.write(f"{each.view}: {each.rows} rows, {told}, up to {each.covers}\n")
            sys.stdout.write("".join(f"  missing: {row}\n" for row in each.missing))
            sys.stdout.write("".join(f"  surplus: {row}\n" for row in each.surplus))
    if not all(each.sound for each in audited):
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

"""`headwater backup` and `headwater restore`: a copy of a log and what is derived from it, taken while it is in use."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.existing import existing, folder_of
from headwater.cli.output import LOG, Json, LogUrl
from headwater.cli.progress import progress_bar
from headwater.derived import DerivedFiles
from headwater.log import Position
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.backup import backup as make
from headwater.log.embedded.backup import restore as make_log
from headwater.log.embedded.manifest import Manifest


def backup(
    to: Annotated[Path, typer.Option("--to", help="The folder to make; it must not be there yet.")],
    log: LogUrl = LOG,
    at: Annotated[str, typer.Option(help="As it was at this position, such as 'clicks:0=12,1=7'; default: now.")] = "",
    as_json: Json = False,
) -> None:
    """Copy a log with its pipelines' checkpoints and its views' stores, while they are in use. Whole or not there.

    With --at, up to the last append at or before that position; topics and partitions that it does not name are cut at
    the same append. A checkpoint or store that does not go with the log in the copy, for example because it is ahead of
    that position, is left out, and said so: a store is built again by the next run, a view from the log.
    """
    position = Position.parse(at) if at else None
    opened = EmbeddedLog(existing(log))
    try:
        with progress_bar("backing up", as_json=as_json) as advance:
            manifest = make(opened, to, at=position, along=DerivedFiles(), advance=advance)
    finally:
        opened.close()
    _tell(manifest, f"backed up to {to}", as_json=as_json)


def restore(
    source: Annotated[Path, typer.Option("--from", help="The folder of a backup.")],
    to: Annotated[str, typer.Option("--to", help="The log to make, as file:PATH; it must not be there yet.")],
    as_json: Json = False,
) -> None:
    """Make a log of a backup, with checkpoints and stores, all verified against what the backup says of itself. Whole
    or not there."""
    with progress_bar("restoring", as_json=as_json) as advance:
        manifest = make_log(source, folder_of(to), advance=advance)
    _tell(manifest, f"restored to {to}", as_json=as_json)


def _tell(manifest: Manifest, done: str, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(asdict(manifest)) + "\n")
        return
    sys.stdout.write(
        f"{done}: {manifest.records} records up to append {manifest.append}\n"
        f"position {manifest.position}\ndigest {manifest.digest}\n"
    )
    for each in manifest.left_out:
        sys.stdout.write(f"note: {each}\n")

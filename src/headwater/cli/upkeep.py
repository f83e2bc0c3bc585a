"""`headwater upkeep`: one round of what a running app does by itself: retention, compaction, rolling up, garbage."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headwater.cli.output import LOG, Json, LogUrl, write_rows
from headwater.cli.progress import progress_bar
from headwater.errors import UsageError
from headwater.log import open_log
from headwater.log.embedded import EmbeddedLog


def upkeep(
    log: LogUrl = LOG,
    grace_s: Annotated[float, typer.Option(help="How long files that nothing lists any more stay.")] = 3600,
    as_json: Json = False,
) -> None:
    """Keep the log in shape: roll up small chunks, let old records go, compact tables, remove garbage."""
    opened = open_log(log)
    if not isinstance(opened, EmbeddedLog):
        raise UsageError(what="only a file: log needs upkeep", do="Use the backend's own tools")
    with progress_bar("keeping up", as_json=as_json) as advance:
        done = opened.upkeep.run(advance=advance)
    removed = opened.upkeep.collect_garbage(grace_s=grace_s)
    write_rows([{**asdict(done), "files_removed": done.files_removed + removed}], as_json=as_json)

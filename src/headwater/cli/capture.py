"""`headwater capture ...`: run what fills topics from databases, and see how it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.capture.appender import position_in
from headwater.capture.position import position_text
from headwater.capture.state import State, ask, captures_in
from headwater.cli.existing import existing
from headwater.cli.output import LOG, Json, LogUrl, write_rows
from headwater.cli.run import load_app
from headwater.cli.status import StatusLine
from headwater.errors import UsageError
from headwater.log import open_log

cli = typer.Typer(no_args_is_help=True, help="Databases that become topics.")


@cli.command()
def run(
    file: Annotated[Path, typer.Argument(help="A Python file that declares one hw.App.")],
    caught_up: Annotated[
        bool, typer.Option("--caught-up", help="End when all that is committed now is captured.")
    ] = False,
) -> None:
    """Capture only, without Spark, until Ctrl-C; views and streams go on when the app runs."""
    app = load_app(file)
    line = StatusLine(app.name)
    try:
        app.run(only="captures", until="caught-up" if caught_up else "stopped", say=line.say, show=line.show)
    finally:
        line.clear()
        app.close()


@cli.command()
def resnapshot(
    name: Annotated[str, typer.Argument(help="The capture's name.")],
    tables: Annotated[list[str] | None, typer.Argument(help="Which of its tables.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them; also after a gap in the stream.")] = False,
    log: LogUrl = LOG,
) -> None:
    """Compare tables with their topics and append what differs, while the stream goes on: done by the capture that runs
    now, or first of all by the next one."""
    if every == bool(tables):
        raise UsageError(what="which tables?", do="Name some, or say --all")
    existing(log)
    opened = open_log(log)
    known = captures_in(opened)
    if name not in known:
        raise UsageError(what=f"this log knows no capture {name!r}", do=f"Captures here: {', '.join(known) or 'none'}")
    ask(opened, name, ["*"] if every else list(tables or []))
    opened.close()


@cli.command()
def status(log: LogUrl = LOG, as_json: Json = False) -> None:
    """All captures that this log knows: how far they are, and what of their snapshots is done."""
    existing(log)
    opened = open_log(log)
    rows = []
    for name in captures_in(opened):
        state = State(opened, name)
        state.load()
        position = position_in(opened, name)
        pieces, source = state.get("pieces") or [], state.get("source")
        rows.append(
            {
                "capture": name,
                "slot": (source or {}).get("name"),
                "position": position_text(source, position.end) if position is not None else None,
                "tables": ", ".join(dict.fromkeys(piece["table"] for piece in pieces)),
                "snapshot": f"{sum(piece['done'] for piece in pieces)} of {len(pieces)} ranges",
            }
        )
    write_rows(rows, as_json=as_json)

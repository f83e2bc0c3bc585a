"""`headwater run FILE`: load the app that a Python file declares, and run it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.app import App
from headwater.cli.status import StatusLine
from headwater.errors import UsageError


def run(
    file: Annotated[Path, typer.Argument(help="A Python file that declares one hw.App.")],
    http: Annotated[str, typer.Option(help="Where to serve, as HOST:PORT; 'off' for nowhere.")] = "127.0.0.1:8080",
    caught_up: Annotated[bool, typer.Option("--caught-up", help="End when all inputs are processed.")] = False,
    master: Annotated[str | None, typer.Option(help="Another Spark master than this machine.")] = None,
) -> None:
    """Keep the app's views up to date and serve them, until Ctrl-C."""
    app = load_app(file)
    line = StatusLine(app.name)
    try:
        app.run(
            until="caught-up" if caught_up else "stopped",
            http=None if http == "off" else http,
            master=master,
            say=line.say,
            show=line.show,
        )
    finally:
        line.clear()
        app.close()


def load_app(file: Path) -> App:
    if not file.is_file():
        raise UsageError(what=f"there is no file {file}", do="Name a Python file that declares an hw.App")
    sys.path.insert(0, str(file.parent.absolute()))
    declared = [
        value for value in runpy.run_path(str(file), run_name="headwater_app").values() if isinstance(value, App)
    ]
    unique = list({id(app): app for app in declared}.values())
    if len(unique) != 1:
        raise UsageError(
            what=f"{file} declares {len(unique)} apps", do="Declare exactly one at the top level: app = hw.App('name')"
        )
    return unique[0]

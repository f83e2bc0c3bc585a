"""`headwater view ...`: the views of an app, and their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.output import Json, write_rows
from headwater.cli.run import load_app
from headwater.errors import ViewNotFound
from headwater.log import Position

cli = typer.Typer(no_args_is_help=True, help="Views of an app.")
AppFile = Annotated[Path, typer.Option("--app", envvar="HEADWATER_APP", help="The Python file that declares the app.")]


@cli.command("list")
def list_(app: AppFile, as_json: Json = False) -> None:
    """The app's views, with what they cover."""
    with load_app(app) as loaded:
        rows = [
            {"view": view.name, "key": ", ".join(view.spec.key), "covers": str(view.position)}
            for view in loaded.views.values()
        ]
    write_rows(rows, as_json=as_json)


@cli.command()
def get(
    name: Annotated[str, typer.Argument(help="The view's name.")],
    app: AppFile,
    key: Annotated[list[str] | None, typer.Argument(help="One value a key column; none for all rows.")] = None,
    after: Annotated[str, typer.Option(help="Wait until the view covers this position.")] = "",
    timeout_s: Annotated[float, typer.Option(help="How long to wait for it, in seconds.")] = 30,
    as_json: Json = False,
) -> None:
    """The rows of a view, or the row of one key."""
    with load_app(app) as loaded:
        if name not in loaded.views:
            raise ViewNotFound(view=name, known=loaded.views)
        view = loaded.views[name]
        if after:
            view.wait(Position.parse(after), timeout_s=timeout_s)
        if key:
            row = view.get(tuple(key))
            rows = [row] if row is not None else []
        else:
            rows = view.read().to_pylist()
    write_rows(rows, as_json=as_json)

"""`headwater decider ...`: what an app's deciders hold, as it is and as it was, and whether it is what events say."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.app import App
from headwater.cli.output import Json, write_records, write_rows
from headwater.cli.run import load_app
from headwater.decide import Decider
from headwater.errors import DeciderNotFound

cli = typer.Typer(no_args_is_help=True, help="Deciders: commands that become events.")

UNSOUND = 7
File = Annotated[Path, typer.Argument(help="A Python file that declares one hw.App.")]
Name = Annotated[str, typer.Argument(help="The decider's name.")]
Id = Annotated[str, typer.Argument(help="The aggregate's id.")]


@cli.command("list")
def list_(file: File, as_json: Json = False) -> None:
    """The deciders of an app, with their topics, commands and events."""
    with load_app(file) as app:
        rows = [
            {
                "decider": each.name,
                "topic": each.topic.name,
                "commands": ", ".join(kind.__name__ for kind in each.spec.commands),
                "events": ", ".join(kind.__name__ for kind in each.spec.events),
            }
            for each in app.deciders.values()
        ]
    write_rows(rows, as_json=as_json)


@cli.command()
def state(
    file: File,
    name: Name,
    aggregate: Id,
    version: Annotated[int | None, typer.Option("--as-of", help="After so many of its events.")] = None,
    as_json: Json = False,
) -> None:
    """The state of an aggregate, now or after some of its events."""
    with load_app(file) as app:
        decider = _decider(app, name)
        found = decider.state(aggregate, as_of=version)
        at = decider.version(aggregate) if version is None else version
    if as_json:
        write_records([{"id": aggregate, "version": at, "state": _plain(found)}])
    else:
        sys.stdout.write(f"{found!r}\n")


@cli.command()
def history(file: File, name: Name, aggregate: Id, as_json: Json = False) -> None:
    """The events of an aggregate, from the first on."""
    with load_app(file) as app:
        rows = [
            {
                "version": each.version,
                "at": each.at.isoformat(),
                "type": type(each.event).__name__,
                "event": _plain(each.event) if as_json else repr(each.event),
                "command_id": each.command_id,
            }
            for each in _decider(app, name).history(aggregate)
        ]
    write_rows(rows, as_json=as_json)


@cli.command()
def check(
    file: File,
    name: Annotated[str | None, typer.Argument(help="Only this decider.")] = None,
    as_json: Json = False,
) -> None:
    """Replay all events and compare: versions, snapshots, reserved names. Exit code 7 if something differs."""
    with load_app(file) as app:
        checked = [each.check() for each in ([_decider(app, name)] if name else app.deciders.values())]
    if as_json:
        write_records({"sound": each.sound, **dataclasses.asdict(each)} for each in checked)
    else:
        for each in checked:
            told = "as the events say" if each.sound else "NOT as the events say"
            counts = f"{each.aggregates} aggregates, {each.events} events, {each.snapshots} snapshots"
            sys.stdout.write(f"{each.decider}: {counts}, {told}\n")
            sys.stdout.write("".join(f"  {finding}\n" for finding in each.findings))
    if not all(each.sound for each in checked):
        raise typer.Exit(UNSOUND)


def _decider(app: App, name: str) -> Decider:
    if name not in app.deciders:
        raise DeciderNotFound(decider=name, known=app.deciders)
    return app.deciders[name]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value

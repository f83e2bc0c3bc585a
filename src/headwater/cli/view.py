"""`headwater view ...`: the views of an app, and their rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.app import App
from headwater.cli.output import Json, write_rows
from headwater.cli.run import load_app
from headwater.cli.status import StatusLine
from headwater.errors import UsageError, ViewNotFound
from headwater.log import Position
from headwater.process.version import Version, first_versions
from headwater.process.versions import Versions

cli = typer.Typer(no_args_is_help=True, help="Views of an app.")
Name = Annotated[str, typer.Argument(help="The view's name.")]
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
    name: Name,
    app: AppFile,
    key: Annotated[list[str] | None, typer.Argument(help="One value a key column; none for all rows.")] = None,
    after: Annotated[str, typer.Option(help="Wait until the view covers this position.")] = "",
    timeout_s: Annotated[float, typer.Option(help="How long to wait for it, in seconds.")] = 30,
    where: Annotated[str, typer.Option(help="A condition in SQL, such as \"n >= 5 AND page = '/a'\".")] = "",
    order_by: Annotated[str, typer.Option(help="Columns, such as 'n DESC, page'.")] = "",
    limit: Annotated[int | None, typer.Option(help="At most so many rows.")] = None,
    as_of: Annotated[str, typer.Option(help="The rows as they were: at a time (ISO 8601), or at a position.")] = "",
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
            past = _moment(as_of) if as_of else None
            found = view.read(where=where or None, order_by=order_by or None, limit=limit, as_of=past)
            rows = found.to_pylist()
    write_rows(rows, as_json=as_json)


def _moment(text: str) -> Position | datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return Position.parse(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


# --- versions ---


@cli.command()
def versions(name: Name, app: AppFile, as_json: Json = False) -> None:
    """The versions of a view: which is current, which can be switched to, where their rows are."""
    with load_app(app) as loaded:
        found = _versions(loaded).of(name)
        if not found and name not in loaded.derived:
            raise ViewNotFound(view=name, known=loaded.derived)
        write_rows([_told(loaded, each) for each in found], as_json=as_json)


@cli.command()
def rebuild(
    name: Name,
    app: AppFile,
    from_retained: Annotated[bool, typer.Option("--from-retained", help="Though retention has removed input.")] = False,
    switch: Annotated[bool, typer.Option("--switch", help="Make it current when it is built.")] = False,
    master: Annotated[str | None, typer.Option(help="Another Spark master than this machine.")] = None,
    as_json: Json = False,
) -> None:
    """Build the app's version of a view, and of those that read it, beside the current ones, which stay as they are.

    Interrupted, it goes on with the next call.
    """
    with load_app(app) as loaded:
        built = loaded.rebuild(
            name,
            from_retained=from_retained,
            switch=switch,
            master=master,
            say=StatusLine(loaded.name).say,
        )
        write_rows([_told(loaded, each) for each in built], as_json=as_json)


@cli.command()
def switch(
    name: Name,
    app: AppFile,
    back: Annotated[bool, typer.Option("--back", help="Return to the version that was current before.")] = False,
    version: Annotated[int | None, typer.Option(help="This version, instead of the newest that is built.")] = None,
    as_json: Json = False,
) -> None:
    """Make a built version current, with all that depend on it, at one moment.

    An app that runs goes on with what it has until it is started again, with the code of that version.
    """
    if back and version is not None:
        raise UsageError(what="--back and --version are two answers to one question", do="Give one of them")
    with load_app(app) as loaded:
        known = _versions(loaded)
        current = known.switch_back(name) if back else known.switch(name, version=version)
        write_rows([_told(loaded, each) for each in current], as_json=as_json)


@cli.command()
def drop(
    name: Name,
    app: AppFile,
    version: Annotated[int, typer.Option(help="Which version; never the current one, unless the view is gone.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a version for good: its topic, its store, its checkpoint."""
    from headwater.process.discard import discard

    if not yes:
        typer.confirm(f"Remove version {version} of {name} with all its rows? It can only be built again", abort=True)
    with load_app(app) as loaded:
        dropped = _versions(loaded).drop(name, version, gone=name not in loaded.derived)
        removed = discard(loaded.log, dropped, loaded.folder)
    write_rows([{"view": name, "version": version, "removed": each} for each in removed], as_json=as_json)


@cli.command()
def state(name: Name, app: AppFile, as_json: Json = False) -> None:
    """How much state the current version of a view holds, by operator, bucket and arrangement."""
    from headwater.process.keyed.inspect import summary

    with load_app(app) as loaded:
        version = _versions(loaded).current(name)
        if version is None:
            raise ViewNotFound(view=name, known=loaded.derived)
        write_rows(summary(version.folder(loaded.folder)), as_json=as_json)


@cli.command()
def explain(
    name: Name,
    app: AppFile,
    linear: Annotated[bool, typer.Option("--linear", help="Also show the SQL of what is linear.")] = False,
    as_json: Json = False,
) -> None:
    """How a view is kept up to date: its operators, their keys, what they keep, and where rows go from each."""
    from headwater.process.explain import explain as steps_of
    from headwater.process.keyed.inspect import summary

    with load_app(app) as loaded:
        plan = loaded.plan(name)
        version = _versions(loaded).current(name)
        state = summary(version.folder(loaded.folder)) if version is not None else []
        steps = steps_of(plan, state)
    if not linear and not as_json:
        steps = [{field: value for field, value in step.items() if field != "linear"} for step in steps]
    write_rows(steps, as_json=as_json)


@cli.command()
def skip(name: Name, app: AppFile, as_json: Json = False) -> None:
    """Give up the batch at which a view or stream stopped: the next run sends its records to NAME.dead and goes on."""
    with load_app(app) as loaded:
        progress = loaded.skip(name)
        rows = [{"view": name, "from": str(progress.start), "to": str(progress.end)}] if progress else []
        write_rows(rows, as_json=as_json)


def _versions(app: App) -> Versions:
    return Versions(app.log, app=app.name, found=first_versions(app.folder))


def _told(app: App, version: Version) -> dict[str, Any]:
    covered = app.log.covered(version.producer)
    return {
        "view": version.name,
        "version": version.version,
        "state": version.state,
        "topic": version.topic,
        "covers": str(covered.progress.end) if covered is not None else "",
        "fingerprint": version.fingerprint,
        "changed_at": version.changed_at,
    }

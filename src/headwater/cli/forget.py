"""`headwater topic forget`: which keys, from the topic alone or everywhere; what is told meanwhile, and the report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from headwater.cli.output import LOG, Json, LogUrl, write_rows
from headwater.cli.progress import progress_bar
from headwater.cli.run import load_app
from headwater.cli.status import StatusLine
from headwater.errors import UsageError
from headwater.forgetting import forget as forget_everywhere
from headwater.forgotten import Report
from headwater.log import TopicSpec, open_log
from headwater.log.embedded import EmbeddedLog

SAY_S = 2.0


def forget(
    name: Annotated[str, typer.Argument(help="The topic's name.")],
    key: Annotated[
        list[str] | None, typer.Option(help="A key to forget, as COLUMN=VALUE; once for each key column.")
    ] = None,
    keys: Annotated[
        typer.FileText | None, typer.Option(help="Several: a file, or - for standard input, one JSON object a line.")
    ] = None,
    log: LogUrl = LOG,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Also from all that was made from it: views, stores, dead letters.")
    ] = False,
    app: Annotated[
        Path | None, typer.Option("--app", help="With --everywhere: the app, in whose log it is, and that then runs.")
    ] = None,
    from_retained: Annotated[
        bool, typer.Option("--from-retained", help="Build views again though retention has removed input.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be touched; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Remove all records of a key for good: from chunks, catalog, WAL and archive. Offsets stay.

    With --everywhere, what was made from the topic is thrown away and built again without them, and a report says what
    was removed where, and what remains until when. No app may be running then. Interrupted, call it again.
    """
    if not everywhere and (app is not None or from_retained or dry_run):
        raise UsageError(what="--app, --from-retained and --dry-run go with --everywhere", do="Say --everywhere too")
    with load_app(app) if app is not None else nullcontext() as loaded:
        opened = loaded.log if loaded is not None else open_log(log)
        if not isinstance(opened, EmbeddedLog):
            raise UsageError(what="only a file: log keeps its own chunks", do="Use the backend's own tools")
        wanted = [_typed(opened.topic(name), each) for each in _given(key, keys)]
        if not yes and not dry_run:
            what = str(wanted[0]) if len(wanted) == 1 else f"{len(wanted)} keys"
            where = f"{name} and all that was made from it" if everywhere else name
            typer.confirm(f"Forget all records of {what} in {where}? This cannot be undone", abort=True)
        if everywhere:
            say = (lambda text: None) if as_json else StatusLine("forgetting").say
            report = forget_everywhere(
                loaded or opened,
                name,
                keys=wanted,
                from_retained=from_retained,
                dry_run=dry_run,
                say=say,
                advance=_percent(say),
            )
            write_report(report, as_json=as_json)
            return
        with progress_bar("forgetting", as_json=as_json) as advance:
            done = opened.upkeep.forget(name, keys=wanted, advance=advance)
        write_rows([asdict(done)], as_json=as_json)


def _given(key: list[str] | None, keys: typer.FileText | None) -> Iterator[Mapping[str, Any]]:
    if not key and keys is None:
        raise UsageError(what="no key was given", do="Say --key COLUMN=VALUE, or --keys FILE")
    if key:
        yield dict(part.partition("=")[::2] for part in key)
    for number, line in enumerate(keys or (), start=1):
        if line.strip():
            try:
                told = json.loads(line)
            except ValueError:
                told = None
            if not isinstance(told, dict):
                raise UsageError(what=f"line {number} of --keys is no JSON object", do='Write {"COLUMN": VALUE} a line')
            yield told


def _typed(spec: TopicSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = [column for column in given if column not in spec.key]
    if unknown:
        raise UsageError(what=f"{unknown} is not in the key of {spec.name!r}", do=f"Its key: {', '.join(spec.key)}")
    try:
        return {name: pa.scalar(value).cast(spec.schema.field(name).type).as_py() for name, value in given.items()}
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        types = ", ".join(f"{name} {spec.schema.field(name).type}" for name in spec.key)
        raise UsageError(what=f"a key does not fit that of {spec.name!r}: {error}", do=f"Its key: {types}") from None


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
    would = "Would be removed", "Would be built again from the log"
    titles = would if report.dry_run else ("Removed", "Built again from the log")
    told = report.as_json()
    for title, part in zip((*titles, "Remains"), ("removed", "built_again", "remains"), strict=True):
        if told[part]:
            sys.stdout.write(f"{title}:\n")
            sys.stdout.flush()
            write_rows(told[part], as_json=False)

"""`headwater sql "..."`: one SELECT over every topic and view of a log."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.existing import existing
from headwater.cli.output import LOG, Json, LogUrl, write_rows
from headwater.log import open_log
from headwater.process.version import first_versions
from headwater.process.versions import Versions


def sql(
    query: Annotated[str, typer.Argument(help="A SELECT; topics and views are its tables.")],
    limit: Annotated[int, typer.Option(min=1, help="How many rows at most.")] = 1000,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="How long it may take, in seconds.")] = 60.0,
    log: LogUrl = LOG,
    as_json: Json = False,
) -> None:
    """Ask a question in DuckDB's SQL. It can write nothing and read no files."""
    from headwater.serve.sql import Asking, parse  # sqlglot, which few other commands need

    folder = existing(log)
    opened = open_log(log)
    try:
        versions = Versions(opened, app="", found=first_versions(folder))
        called = {name: now.topic for name in versions.all() if (now := versions.current(name)) is not None}
        answer = Asking(opened, called=called).ask(parse(query), limit=limit, timeout_s=timeout_s)
        write_rows(answer.rows.to_pylist(), as_json=as_json)
        if answer.truncated:
            typer.echo(f"there are more rows than {limit}: say --limit", err=True)
    finally:
        opened.close()

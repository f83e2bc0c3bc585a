"""`headwater topic ...`: what is in the log, in and out as one JSON record a line."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from headwater.cli.output import LOG, Json, LogUrl, write_records, write_rows
from headwater.errors import BadRequest
from headwater.log import Position, Topic, open_log

cli = typer.Typer(no_args_is_help=True, help="Topics of a log.")
Name = Annotated[str, typer.Argument(help="The topic's name.")]
BATCH = 10_000


@cli.command("list")
def list_(log: LogUrl = LOG, as_json: Json = False) -> None:
    """All topics, with what they hold."""
    opened = open_log(log)
    rows = []
    for spec in opened.topics():
        ends = opened.snapshot([spec.name]).position
        records = sum(offset for _, by in ends.ends for _, offset in by)
        rows.append({"topic": spec.name, "kind": spec.kind, "partitions": spec.partitions, "records": records})
    write_rows(rows, as_json=as_json)


@cli.command()
def describe(name: Name, log: LogUrl = LOG, as_json: Json = False) -> None:
    """A topic's columns, key, time and partitions."""
    opened = open_log(log)
    spec = opened.topic(name)
    told: dict[str, Any] = {
        "topic": spec.name,
        "kind": spec.kind,
        "key": list(spec.key),
        "time": spec.time,
        "partitions": spec.partitions,
        "columns": {field.name: str(field.type) for field in spec.schema},
        "end": str(opened.snapshot([name]).position),
    }
    if as_json:
        sys.stdout.write(json.dumps(told) + "\n")
    else:
        write_rows([{"": part, " ": value} for part, value in told.items()], as_json=False)


@cli.command()
def append(name: Name, log: LogUrl = LOG) -> None:
    """Append records from standard input, one JSON record a line; prints the position after them."""
    opened = open_log(log)
    topic = Topic(opened, opened.topic(name))
    position = Position()
    rows: list[Any] = []
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise BadRequest(why=f"line {number} is not JSON: {error}", do="Give one JSON record a line") from None
        if len(rows) >= BATCH:
            position, rows = topic.append(rows), []
    if rows:
        position = topic.append(rows)
    sys.stdout.write(f"{position}\n")


@cli.command()
def read(
    name: Name,
    log: LogUrl = LOG,
    start: Annotated[str, typer.Option(help="A position to begin after.")] = "",
) -> None:
    """Write a topic's records to standard output, one JSON record a line."""
    opened = open_log(log)
    first, spec = Position.parse(start), opened.topic(name)
    last = opened.snapshot([name]).position
    for partition in range(spec.partitions):
        begin, end = first.offset(name, partition), last.offset(name, partition)
        for batch in opened.scan(name, partition, begin, end, metadata=True):
            write_records(batch.to_pylist())

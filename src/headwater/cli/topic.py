"""`headwater topic ...`: what is in the log; records in and out as lines of JSON or Arrow streams, as in any pipe."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import typer
from pyarrow import ipc

from headwater.cli.forget import forget
from headwater.cli.output import LOG, Json, LogUrl, write_records, write_rows
from headwater.errors import BadRequest, UsageError
from headwater.log import Log, Position, Settings, Topic, TopicSpec, open_log
from headwater.log.embedded import EmbeddedLog
from headwater.log.spec import INTERNAL
from headwater.log.spec import describe as described
from headwater.records import schema_of

cli = typer.Typer(no_args_is_help=True, help="Topics of a log.")
Name = Annotated[str, typer.Argument(help="The topic's name.")]
Arrow = Annotated[bool, typer.Option("--arrow", help="An Arrow IPC stream instead of lines of JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]
BATCH = 10_000
cli.command()(forget)


def _topic(log: str, name: str) -> Topic:
    opened = open_log(log)
    return Topic(opened, opened.topic(name))


@cli.command("list")
def list_(
    log: LogUrl = LOG,
    internal: Annotated[bool, typer.Option("--internal", help="Headwater's own topics too.")] = False,
    as_json: Json = False,
) -> None:
    """All topics, with what they hold."""
    opened = open_log(log)
    rows = []
    for spec in opened.topics():
        if spec.name.startswith(INTERNAL) and not internal:
            continue
        extents = opened.extents(spec.name).values()
        records = sum(extent.end - extent.start for extent in extents)
        rows.append({"topic": spec.name, "kind": spec.kind, "partitions": spec.partitions, "records": records})
    write_rows(rows, as_json=as_json)


@cli.command()
def create(
    name: Name,
    columns: Annotated[str, typer.Option(help="As 'user_id:int64, page:string, tags:list<string>'.")],
    log: LogUrl = LOG,
    key: Annotated[str, typer.Option(help="Key columns, separated by commas.")] = "",
    time: Annotated[str | None, typer.Option(help="The event-time column.")] = None,
    table: Annotated[bool, typer.Option("--table", help="A table: its records are changes of rows.")] = False,
    upsert: Annotated[bool, typer.Option("--upsert", help="A table of newest rows and tombstones.")] = False,
    versioned: Annotated[bool, typer.Option("--versioned", help="Keep a version of every key.")] = False,
    partitions: Annotated[int, typer.Option(help="How many partitions.")] = 4,
    retain_s: Annotated[float | None, typer.Option(help="Records older than this may go.")] = None,
    retain_bytes: Annotated[int | None, typer.Option(help="The oldest go above this size of a partition.")] = None,
    most_rows: Annotated[int | None, typer.Option(help="At most so many records are there.")] = None,
    when_full: Annotated[str, typer.Option(help="drop_oldest, drop_newest or block.")] = "drop_oldest",
) -> None:
    """Make a topic."""
    settings = Settings(retain_s=retain_s, retain_bytes=retain_bytes, most_rows=most_rows, when_full=when_full)  # type: ignore[arg-type]
    spec = TopicSpec(
        name,
        schema_of(_columns(columns)),
        key=tuple(part.strip() for part in key.split(",") if part.strip()),
        time=time,
        kind="table" if table or upsert else "stream",
        partitions=partitions,
        upsert=upsert,
        versioned=versioned,
        settings=settings,
    )
    open_log(log).create(spec)


def _columns(text: str) -> dict[str, str]:
    from headwater.typenames import split_at_commas

    pairs = [part.partition(":") for part in split_at_commas(text)]
    if not all(colon for _, colon, _ in pairs):
        raise UsageError(what=f"{text!r} does not name columns", do="Write 'name:type, name:type'")
    return {name.strip(): kind.strip() for name, _, kind in pairs}


@cli.command()
def describe(name: Name, log: LogUrl = LOG, as_json: Json = False) -> None:
    """A topic's columns, key, time, settings, and the extent of its partitions."""
    opened = open_log(log)
    told = described(opened.topic(name))
    extents = {str(partition): asdict(extent) for partition, extent in opened.extents(name).items()}
    if as_json:
        sys.stdout.write(json.dumps({**told, "extents": extents}) + "\n")
    else:
        write_rows([{"": part, " ": value} for part, value in told.items()], as_json=False)
        write_rows([{"partition": partition, **extent} for partition, extent in extents.items()], as_json=False)


@cli.command()
def alter(
    name: Name,
    log: LogUrl = LOG,
    add: Annotated[str, typer.Option(help="Columns to add, as 'name:type, ...'.")] = "",
    widen: Annotated[str, typer.Option(help="Columns to widen, as 'name:type, ...'.")] = "",
) -> None:
    """Evolve a topic's schema: add nullable columns, widen types."""
    opened = open_log(log)
    schema = opened.topic(name).schema
    changed = {**{field.name: field.type for field in schema}}
    for text in (add, widen):
        if text:
            changed |= {field.name: field.type for field in schema_of(_columns(text))}
    opened.alter(name, schema=pa.schema(list(changed.items())))


@cli.command()
def append(name: Name, log: LogUrl = LOG, arrow: Arrow = False) -> None:
    """Append records from standard input, one JSON record a line; prints the position after them."""
    topic = _topic(log, name)
    position = Position()
    if arrow:
        try:
            for batch in ipc.open_stream(sys.stdin.buffer):
                position = topic.append(_own_columns(batch, topic))
        except pa.ArrowInvalid as error:
            raise BadRequest(why=f"standard input is not an Arrow stream: {error}", do="Leave out --arrow") from None
    else:
        position = _append_lines(topic)
    sys.stdout.write(f"{position}\n")


def _own_columns(batch: pa.RecordBatch, topic: Topic) -> pa.RecordBatch:
    """Without the metadata of the topic it was read from: a topic pipes into another."""
    kept = [name for name in batch.schema.names if not name.startswith("_") or name in topic.spec.stored.names]
    return batch.select(kept)


def _append_lines(topic: Topic) -> Position:
    position = Position()
    rows: list[Any] = []
    stored = topic.spec.stored.names
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise BadRequest(why=f"line {number} is not JSON: {error}", do="Give one JSON record a line") from None
            if isinstance(row, dict):
                row = {name: value for name, value in row.items() if not name.startswith("_") or name in stored}
            rows.append(row)
        if len(rows) >= BATCH:
            position, rows = topic.append(rows), []
    return topic.append(rows) if rows else position


@cli.command()
def read(
    name: Name,
    log: LogUrl = LOG,
    start: Annotated[str, typer.Option(help="A position to begin after.")] = "",
    since: Annotated[datetime | None, typer.Option(help="Begin with what was appended since this time (UTC).")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as records come, until interrupted.")] = False,
    arrow: Arrow = False,
    form: Annotated[
        Literal["records", "debezium"], typer.Option("--format", help="Or a table's changes in Debezium's envelope.")
    ] = "records",
    schemas: Annotated[bool, typer.Option("--schemas", help="With Debezium's envelope, schemas beside it.")] = False,
) -> None:
    """Write a topic's records to standard output, one JSON record a line."""
    if form == "debezium":
        _write_envelopes(open_log(log), name, start, since, follow=follow, schemas=schemas)
        return
    topic = _topic(log, name)
    begin = since.astimezone() if since else Position.parse(start) if start else None
    batches = topic.follow(begin) if follow else topic.follow(begin, timeout_s=0)
    writer = None
    for batch, _ in batches:
        if arrow:
            writer = writer or ipc.new_stream(sys.stdout.buffer, batch.schema)
            writer.write_batch(batch)
        else:
            write_records(batch.to_pylist())
        if follow:
            sys.stdout.flush()
    if writer is not None:
        writer.close()


def _write_envelopes(
    opened: Log, name: str, start: str, since: datetime | None, *, follow: bool, schemas: bool
) -> None:
    """As lines with the texts of key and value: what a topic that is to be read as Debezium's is made of."""
    from headwater.capture.envelopes.writing import envelopes

    begin = Position.parse(start) if start else None
    if since is not None:
        begin = Position.of({name: opened.position_from(name, int(since.astimezone().timestamp() * 1_000_000))})
    for each in envelopes(opened, name, begin, timeout_s=None if follow else 0.0, schemas=schemas):
        write_records([{"key": each.key, "value": each.value}])
        if follow:
            sys.stdout.flush()


@cli.command()
def delete(name: Name, log: LogUrl = LOG, yes: Yes = False) -> None:
    """Remove a topic and all its records."""
    if not yes:
        typer.confirm(f"Delete the topic {name} and all its records? This cannot be undone", abort=True)
    open_log(log).delete(name)


@cli.command()
def archive(
    name: Name,
    to: Annotated[str, typer.Option(help="A folder or any fsspec URL, such as s3://bucket/logs.")],
    log: LogUrl = LOG,
    older_than_s: Annotated[float, typer.Option(help="Only what is older than this.")] = 0,
) -> None:
    """Move files of old chunks elsewhere; reads span both."""
    url = to if "://" in to else f"file://{Path(to).absolute()}"
    moved = _embedded(open_log(log)).upkeep.archive(name, url, older_than_s=older_than_s)
    sys.stdout.write(f"{moved} chunks moved to {url}\n")


def _embedded(log: object) -> EmbeddedLog:
    if not isinstance(log, EmbeddedLog):
        raise UsageError(what="only a file: log keeps its own chunks", do="Use the backend's own tools")
    return log

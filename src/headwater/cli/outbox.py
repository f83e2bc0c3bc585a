"""`headwater outbox ...`: messages of webhooks and mails that wait or have failed, and sending them again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.existing import existing
from headwater.cli.output import LOG, Json, LogUrl, write_rows
from headwater.errors import UsageError
from headwater.serve.stores.outbox_file import Message, OutboxFile

cli = typer.Typer(no_args_is_help=True, help="Outboxes: messages of webhooks and mails on their way.")
Name = Annotated[str, typer.Argument(help="The outbox's name, as `list` has it.")]


@cli.command("list")
def list_(log: LogUrl = LOG, as_json: Json = False) -> None:
    """All outboxes, with what waits, what has failed, and why."""
    rows = []
    for path in _paths(log):
        with _opened(path) as outbox:
            rows.append({"name": path.stem, **asdict(outbox.about())})
    write_rows(rows, as_json=as_json)


@cli.command()
def waiting(name: Name, log: LogUrl = LOG, as_json: Json = False) -> None:
    """Messages that are still tried."""
    with _named(name, log) as outbox:
        write_rows([_row(message) for message in outbox.waiting()], as_json=as_json)


@cli.command()
def failed(name: Name, log: LogUrl = LOG, as_json: Json = False) -> None:
    """Messages that were given up after the last try."""
    with _named(name, log) as outbox:
        write_rows([_row(message) for message in outbox.failures()], as_json=as_json)


@cli.command()
def replay(
    name: Name,
    message: Annotated[str | None, typer.Argument(help="The message's id; all that have failed if not given.")] = None,
    log: LogUrl = LOG,
    as_json: Json = False,
) -> None:
    """Send messages that have failed again, under their ids. The app that runs does it within seconds."""
    with _named(name, log) as outbox:
        ids = [message] if message else [each.message_id for each in outbox.failures()]
        for each in ids:
            outbox.replay(each)
    write_rows([{"message": each, "state": "waiting"} for each in ids], as_json=as_json)


@cli.command()
def enable(name: Name, log: LogUrl = LOG, as_json: Json = False) -> None:
    """Send again, after the receiver had said that it is gone (410)."""
    with _named(name, log) as outbox:
        outbox.enable()
    write_rows([{"name": name, "state": "enabled"}], as_json=as_json)


def _paths(log: str) -> list[Path]:
    return sorted((existing(log) / "stores").glob("*.outbox"))


@contextmanager
def _named(name: str, log: str) -> Iterator[OutboxFile]:
    paths = {path.stem: path for path in _paths(log)}
    if name not in paths:
        raise UsageError(what=f"there is no outbox {name!r}", do=f"Outboxes here: {', '.join(paths) or 'none'}")
    with _opened(paths[name]) as outbox:
        yield outbox


@contextmanager
def _opened(path: Path) -> Iterator[OutboxFile]:
    outbox = OutboxFile(path)
    try:
        yield outbox
    finally:
        outbox.close()


def _row(message: Message) -> dict[str, object]:
    due = datetime.fromtimestamp(message.due_us / 1e6, UTC).isoformat(timespec="seconds")
    return {
        "message": message.message_id,
        "bytes": len(message.body),
        "tries": message.tries,
        "due": due,
        "said": message.said,
    }

"""`headwater queue ...`: taking records one by one, settling them, and their dead letters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from headwater.cli.output import LOG, Json, LogUrl, write_records, write_rows
from headwater.log import open_log
from headwater.log.opening import queues_of
from headwater.log.queues import ATTEMPTS, LEASE_S, Queue

cli = typer.Typer(no_args_is_help=True, help="Queues: each record of a topic is taken and acknowledged alone.")
Name = Annotated[str, typer.Argument(help="The queue's name.")]
Receipt = Annotated[str, typer.Argument(help="The receipt that `take` printed with the record.")]


@cli.command("list")
def list_(log: LogUrl = LOG, as_json: Json = False) -> None:
    """All queues, with what waits, is taken and died."""
    opened = open_log(log)
    queues = queues_of(opened)
    rows: list[dict[str, Any]] = []
    for spec in queues.queues():
        lags = queues.lag(spec.name)
        counts = {name: sum(getattr(row, name) for row in lags) for name in ("waiting", "taken", "returned")}
        there = any(topic.name == spec.dead for topic in opened.topics())
        dead = Queue(opened, queues, spec.name).dead() if there else 0
        rows.append({"queue": spec.name, "topic": spec.topic, **counts, "dead": dead, "dead_letters": spec.dead})
    write_rows(rows, as_json=as_json)


@cli.command()
def create(
    name: Name,
    topic: Annotated[str, typer.Argument(help="The topic whose records it hands out.")],
    lease_s: Annotated[float, typer.Option(help="How long a taken record is its taker's, in seconds.")] = LEASE_S,
    attempts: Annotated[int, typer.Option(help="After so many it is a dead letter.")] = ATTEMPTS,
    dead: Annotated[str | None, typer.Option(help="The dead-letter topic; QUEUE.dead if not given.")] = None,
    from_end: Annotated[bool, typer.Option("--from-end", help="Leave out what is in the topic already.")] = False,
    log: LogUrl = LOG,
    as_json: Json = False,
) -> None:
    """Make a queue on a stream, and its dead-letter topic."""
    start: Any = "end" if from_end else "start"
    spec = queues_of(open_log(log)).create(name, topic, lease_s=lease_s, attempts=attempts, dead=dead, start=start)
    write_rows([asdict(spec)], as_json=as_json)


@cli.command()
def take(
    name: Name,
    count: Annotated[int, typer.Option(help="How many at most.")] = 1,
    wait_s: Annotated[float, typer.Option(help="How long to wait for the first, in seconds.")] = 0,
    log: LogUrl = LOG,
    as_json: Json = False,
) -> None:
    """Take records under a lease: one JSON object a line with the record and its receipt; --json for one list."""
    opened = open_log(log)
    taken = [asdict(each) for each in Queue(opened, queues_of(opened), name).take(count, wait_s=wait_s)]
    if as_json:
        write_rows(taken, as_json=True)
    else:
        write_records(taken)


@cli.command()
def ack(name: Name, receipt: Receipt, log: LogUrl = LOG, as_json: Json = False) -> None:
    """Done with a record."""
    queues_of(open_log(log)).acknowledge(name, receipt)
    _settled("acknowledged", receipt, as_json=as_json)


@cli.command()
def extend(
    name: Name,
    receipt: Receipt,
    lease_s: Annotated[
        float | None, typer.Option(help="For how long from now; the queue's lease if not given.")
    ] = None,
    log: LogUrl = LOG,
    as_json: Json = False,
) -> None:
    """Keep a record for longer: the work on it goes on."""
    until = queues_of(open_log(log)).extend(name, receipt, lease_s=lease_s)
    write_rows([{"receipt": receipt, "state": "extended", "until": until}], as_json=as_json)


@cli.command()
def release(name: Name, receipt: Receipt, log: LogUrl = LOG, as_json: Json = False) -> None:
    """Give a record back: anyone may take it at once; after the last attempt it is a dead letter."""
    queues_of(open_log(log)).release(name, receipt)
    _settled("released", receipt, as_json=as_json)


@cli.command()
def reject(name: Name, receipt: Receipt, log: LogUrl = LOG, as_json: Json = False) -> None:
    """Make a record a dead letter."""
    queues_of(open_log(log)).reject(name, receipt)
    _settled("rejected", receipt, as_json=as_json)


@cli.command()
def replay(
    name: Name,
    max_rows: Annotated[int | None, typer.Option(help="How many at most; all if not given.")] = None,
    from_retained: Annotated[bool, typer.Option("--from-retained", help="Leave out what is gone.")] = False,
    log: LogUrl = LOG,
    as_json: Json = False,
) -> None:
    """Append the dead letters to the queue's topic again, each once; all readers of that topic see them."""
    opened = open_log(log)
    replayed = Queue(opened, queues_of(opened), name).replay(max_rows=max_rows, from_retained=from_retained)
    write_rows([{"queue": name, "replayed": replayed}], as_json=as_json)


@cli.command()
def lag(name: Name, log: LogUrl = LOG, as_json: Json = False) -> None:
    """What waits, is taken, came back and was missed, a line a partition."""
    write_rows([asdict(row) for row in queues_of(open_log(log)).lag(name)], as_json=as_json)


@cli.command()
def skip(name: Name, log: LogUrl = LOG, as_json: Json = False) -> None:
    """Give up records that were removed from the topic before anyone acknowledged them, and go on behind them."""
    given_up = queues_of(open_log(log)).skip(name)
    rows = [{"partition": p, "from": first, "to": end} for p, (first, end) in given_up.items()]
    write_rows(rows, as_json=as_json)


@cli.command()
def remove(name: Name, log: LogUrl = LOG) -> None:
    """Forget a queue and its leases. Its topic and its dead letters stay."""
    queues_of(open_log(log)).remove(name)


def _settled(how: str, receipt: str, *, as_json: bool) -> None:
    write_rows([{"receipt": receipt, "state": how}], as_json=as_json)

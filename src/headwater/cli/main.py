"""`headwater`: nouns and verbs; errors in one line with what to do next, and an exit code by their class."""

from __future__ import annotations

import os
import sys

import typer

from headwater.cli import (
    backup,
    capture,
    decider,
    doctor,
    group,
    queue,
    run,
    serve,
    sql,
    token,
    topic,
    upkeep,
    user,
    verify,
    view,
)
from headwater.errors import HeadwaterError, codes

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Headwater: one durable log, live views derived from it.",
)
cli.command("run")(run.run)
cli.command("serve")(serve.serve)
cli.command("sql")(sql.sql)
cli.command("upkeep")(upkeep.upkeep)
cli.command("verify")(verify.verify)
cli.command("doctor")(doctor.doctor)
cli.command("backup")(backup.backup)
cli.command("restore")(backup.restore)
cli.add_typer(topic.cli, name="topic")
cli.add_typer(group.cli, name="group")
cli.add_typer(queue.cli, name="queue")
cli.add_typer(view.cli, name="view")
cli.add_typer(capture.cli, name="capture")
cli.add_typer(token.cli, name="token")
cli.add_typer(user.cli, name="user")
cli.add_typer(decider.cli, name="decider")


def main() -> None:
    try:
        cli()
    except HeadwaterError as error:
        sys.stderr.write(f"headwater: {error}\n")
        sys.exit(codes(error)[1])
    except BrokenPipeError:  # the reader of our output has gone: `headwater topic read clicks | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

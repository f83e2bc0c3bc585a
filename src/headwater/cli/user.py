"""`headwater user ...`: people who log in with a password."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headwater.cli.output import LOG, Json, LogUrl, write_rows
from headwater.cli.token import Allow, Deny, access_of, rules_of

cli = typer.Typer(no_args_is_help=True, help="People with a password. The first one made turns authentication on.")
Name = Annotated[str, typer.Argument(help="The name they log in with, which rules know.")]


@cli.command()
def add(
    name: Name,
    allow: Allow = [],  # noqa: B006 typer reads it, nobody changes it
    deny: Deny = [],  # noqa: B006
    from_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from the first line of stdin.")
    ] = False,
    log: LogUrl = LOG,
    as_json: Json = False,
) -> None:
    """Add somebody, or give them a new password; it is asked for, and kept as an argon2id hash."""
    if from_stdin:
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    access_of(log).add_user(name, password, rules_of(name, allow, deny))
    write_rows([{"user": name, "state": "added"}], as_json=as_json)


@cli.command("list")
def list_(log: LogUrl = LOG, as_json: Json = False) -> None:
    """Everybody, with their rules."""
    book = access_of(log).book()
    rows = [
        {"user": user.name, "rules": "; ".join(str(rule) for rule in book.rules if rule.principal == user.name)}
        for user in book.users
    ]
    write_rows(rows, as_json=as_json)


@cli.command()
def remove(name: Name, log: LogUrl = LOG, as_json: Json = False) -> None:
    """Nobody logs in under this name any more, and sessions under it are over."""
    access_of(log).remove_user(name)
    write_rows([{"user": name, "state": "removed"}], as_json=as_json)

"""`headwater token ...`: what programs prove with who they are, and what they may do."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from headwater.cli.existing import folder_of
from headwater.cli.output import LOG, Json, LogUrl, write_rows
from headwater.durations import micros
from headwater.serve.access import Access, Rule, parse_rule

cli = typer.Typer(no_args_is_help=True, help="Tokens of programs. The first one made turns authentication on.")
Allow = Annotated[list[str], typer.Option(help="OPERATION RESOURCE, such as 'append topic:clicks' or 'read view:*'.")]
Deny = Annotated[list[str], typer.Option(help="The same, denied: this outweighs whatever allows it.")]


def access_of(log: str) -> Access:
    folder = folder_of(log)
    folder.mkdir(parents=True, exist_ok=True)
    return Access(folder)


def rules_of(principal: str, allow: list[str], deny: list[str]) -> list[Rule]:
    return [
        *(parse_rule(principal, "allow", text) for text in allow),
        *(parse_rule(principal, "deny", text) for text in deny),
    ]


@cli.command()
def create(
    principal: Annotated[str, typer.Argument(help="Who it is for: the name that rules know.")],
    allow: Allow = [],  # noqa: B006 typer reads it, nobody changes it
    deny: Deny = [],  # noqa: B006
    expires: Annotated[str | None, typer.Option(help="After which it is worth nothing, such as '30 days'.")] = None,
    log: LogUrl = LOG,
    as_json: Json = False,
) -> None:
    """Make a token and print it, this once: only its hash is kept."""
    lasts = None if expires is None else micros(expires, what="--expires")
    token, secret = access_of(log).add_token(principal, rules_of(principal, allow, deny), lasts_us=lasts)
    if as_json:
        sys.stdout.write(json.dumps({"id": token.id, "principal": principal, "token": secret}) + "\n")
    else:
        sys.stdout.write(f"{secret}\n")


@cli.command("list")
def list_(log: LogUrl = LOG, as_json: Json = False) -> None:
    """All tokens, by their ids, and the rules of whom they are for."""
    book = access_of(log).book()
    rows = [
        {
            "token": token.id,
            "principal": token.principal,
            "made": _moment(token.made_at),
            "expires": _moment(token.expires_at),
            "rules": "; ".join(str(rule) for rule in book.rules if rule.principal == token.principal),
        }
        for token in book.tokens
    ]
    write_rows(rows, as_json=as_json)


@cli.command()
def revoke(
    token: Annotated[str, typer.Argument(help="Its id, as `list` shows it.")], log: LogUrl = LOG, as_json: Json = False
) -> None:
    """From now on it is worth nothing, also at servers that run."""
    gone = access_of(log).revoke(token)
    write_rows([{"token": gone.id, "principal": gone.principal, "state": "revoked"}], as_json=as_json)


def _moment(us: int | None) -> Any:
    return None if us is None else datetime.fromtimestamp(us / 1_000_000, UTC).isoformat(timespec="seconds")

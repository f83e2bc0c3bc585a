"""How commands answer: a table for people, JSON where asked, one record a line where records are asked for."""

from __future__ import annotations

import base64
import datetime
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
LogUrl = Annotated[str, typer.Option("--log", envvar="HEADWATER_LOG", help="The log, as file:PATH.")]
LOG = "file:data"


def write_records(rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        sys.stdout.write(json.dumps(row, default=_value, ensure_ascii=False) + "\n")


def write_rows(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(rows, default=_value, ensure_ascii=False) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*(rows[0] if rows else ["nothing here yet"]), box=None, header_style="bold")
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    Console().print(table)


def _value(value: Any) -> Any:
    if isinstance(value, datetime.date | datetime.datetime):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

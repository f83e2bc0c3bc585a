"""`headwater run FILE`: load the app that a Python file declares, and run it."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headwater.app import App
from headwater.cli.output import Json
from headwater.cli.status import StatusLine
from headwater.errors import UsageError
from headwater.process.changes import Change, rendered
from headwater.serve.address import with_tls

Certificate = Annotated[Path | None, typer.Option(help="Serve by TLS: the certificate, a PEM file.")]
CertificateKey = Annotated[Path | None, typer.Option("--key", help="The certificate's key, a PEM file.")]


def run(
    file: Annotated[Path, typer.Argument(help="A Python file that declares one hw.App.")],
    http: Annotated[str, typer.Option(help="Where to serve, as HOST:PORT; 'off' for nowhere.")] = "127.0.0.1:8080",
    caught_up: Annotated[bool, typer.Option("--caught-up", help="End when all inputs are processed.")] = False,
    master: Annotated[str | None, typer.Option(help="Another Spark master than this machine.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would change; run nothing.")] = False,
    certificate: Certificate = None,
    key: CertificateKey = None,
    as_json: Json = False,
) -> None:
    """Keep the app's views and streams up to date and serve them, until Ctrl-C."""
    if as_json and not plan:
        raise UsageError(what="--json is for --plan", do="Say --plan, or leave out --json")
    app = load_app(file)
    line = StatusLine(app.name)
    try:
        if plan:
            _show(app.diff(), file, as_json=as_json)
            return
        app.run(
            until="caught-up" if caught_up else "stopped",
            http=None if http == "off" else with_tls(http, certificate, key),
            master=master,
            say=line.say,
            show=line.show,
        )
    finally:
        line.clear()
        app.close()


def _show(changes: list[Change], file: Path, *, as_json: bool) -> None:
    told = [{**asdict(each), "do": each.do.replace("FILE", str(file))} for each in changes]
    text = json.dumps(told) if as_json else rendered([Change(**each) for each in told])
    sys.stdout.write(f"{text}\n")


def load_app(file: Path) -> App:
    if not file.is_file():
        raise UsageError(what=f"there is no file {file}", do="Name a Python file that declares an hw.App")
    sys.path.insert(0, str(file.parent.absolute()))
    declared = [
        value for value in runpy.run_path(str(file), run_name="headwater_app").values() if isinstance(value, App)
    ]
    unique = list({id(app): app for app in declared}.values())
    if len(unique) != 1:
        raise UsageError(
            what=f"{file} declares {len(unique)} apps", do="Declare exactly one at the top level: app = hw.App('name')"
        )
    return unique[0]

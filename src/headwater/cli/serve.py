"""`headwater serve`: the HTTP server alone, over a log that others may write to as well; no Spark."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.existing import existing
from headwater.cli.output import LOG, LogUrl
from headwater.cli.run import Certificate, CertificateKey, load_app
from headwater.log import Log, Topic, open_log
from headwater.log.spec import INTERNAL
from headwater.process.version import first_versions
from headwater.process.versions import Versions
from headwater.serve.address import with_tls

if TYPE_CHECKING:
    from headwater.serve.server import Server


def serve(
    file: Annotated[
        Path | None, typer.Argument(help="A Python file that declares an hw.App, to serve its views too.")
    ] = None,
    http: Annotated[str, typer.Option(help="Where to serve, as HOST:PORT.")] = "127.0.0.1:8080",
    certificate: Certificate = None,
    key: CertificateKey = None,
    log: LogUrl = LOG,
) -> None:
    """Serve every topic of a log, and the views of an app, until Ctrl-C. Views go on only where the app runs."""
    from headwater.serving import start_server  # FastAPI, which no other command needs

    address = with_tls(http, certificate, key)
    if file is not None:
        app = load_app(file)
        topics = plain_topics(app.log, app.folder)
        _until_stopped(start_server(app.log, app.folder, address, app, topics=topics))
        app.close()
    else:
        folder = existing(log)
        opened = open_log(log)
        _until_stopped(start_server(opened, folder, address, None, topics=plain_topics(opened, folder)))
        opened.close()


def plain_topics(log: Log, folder: Path) -> dict[str, Topic]:
    """What may be appended to: all topics that no pipeline makes."""
    versions = Versions(log, app="", found=first_versions(folder)).all()
    made = {each.topic for of in versions.values() for each in of}
    made |= {f"{name}.{side}" for name in versions for side in ("late", "dead")}
    plain = [spec for spec in log.topics() if spec.name not in made and not spec.name.startswith(INTERNAL)]
    return {spec.name: Topic(log, spec) for spec in plain}


def _until_stopped(server: Server) -> None:
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    typer.echo(f"serving {server.url}", err=True)
    stopped.wait()
    server.stop()

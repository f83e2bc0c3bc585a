"""Our side: an app that runs, Spark and all, and serves a view of the rows from its store."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

import headwater as hw
from for_pipeline.children import Child
from for_serve.rows import TYPES, rows

VIEW = "stock"
START_S = 300.0
BLOCK = 50_000


def make_app(folder: Path) -> hw.App:
    app = hw.App("bench", log=f"file:{folder / 'log'}")
    app.topic("items", TYPES, key="item_id", kind="table", upsert=True)
    app.topic("clicks", TYPES, key="item_id")
    app.latest(VIEW, of="items")
    return app


def run_app(folder: Path, port: int, pipe: Connection) -> None:
    app = make_app(folder)

    def wait() -> None:
        pipe.poll(None)
        app.stop()

    threading.Thread(target=wait, daemon=True).start()
    app.run(http=f"127.0.0.1:{port}")
    app.close()


@contextmanager
def served(folder: Path, count: int) -> Iterator[int]:
    """The port of an app that runs and whose view has all rows."""
    app = make_app(folder)
    several = rows(count)
    while block := list(islice(several, BLOCK)):
        last = app.topics["items"].upsert(pa.Table.from_pylist(block))
    port = _free_port()
    running = Child(run_app, folder, port)
    try:
        app.views[VIEW].wait(last, timeout_s=START_S)
        yield port
    finally:
        running.tell("stop")
        running.end()
        app.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

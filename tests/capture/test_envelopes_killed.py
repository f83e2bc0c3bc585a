"""Reading Debezium's messages, killed with -9 amid its appends, while some of them are delivered again."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater as hw
from headwater.log import TopicSpec
from headwater.records import schema_of
from tests.capture.replay import replayed
from tests.property.test_envelopes import COLUMNS, Debezium, Message, Table

APP = """
import headwater as hw
from headwater.capture.envelopes import capture

capture.MOST = 20  # messages an append: there are many, to be killed in between
app = hw.App("shop", log={log!r})
app.topic("raw", {{"key": "string", "value": "string"}}, partitions=1)
app.topic("people", {columns!r}, key=("id", "part"), kind="table")
app.capture("debezium:raw", tables={{"public.people": "people"}})
"""
CLI = "from headwater.cli.main import main; main()"
KILLS = 3


@pytest.mark.slow
def test_exact_through_kills(tmp_path: Path, until: Callable[..., None]) -> None:
    url = f"file:{tmp_path / 'log'}"
    file = tmp_path / "app.py"
    file.write_text(APP.format(log=url, columns=COLUMNS))
    log = hw.open(url)
    raw = hw.Topic(log, log.create(TopicSpec("raw", schema_of({"key": "string", "value": "string"}), partitions=1)))
    chosen, table = random.Random(11), Table()
    writer = Debezium(chosen, full=False, schemas=False)
    messages: list[Message] = []
    delivered = 0

    def appends() -> int:
        covered = log.covered("capture.shop")
        return covered.sequence if covered is not None else -1

    for _ in range(KILLS):
        for change in table.changes(chosen, 250):
            messages += writer.messages(*change)
        raw.append([dict(each) for each in messages[max(0, delivered - 60) :]])
        delivered = len(messages)
        before, further = appends(), chosen.randint(1, 6)
        process = subprocess.Popen([sys.executable, "-c", CLI, "capture", "run", str(file)])
        until(lambda before=before, further=further: appends() >= before + further, within_s=60)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([sys.executable, "-c", CLI, "capture", "run", str(file), "--caught-up"], check=True, timeout=60)
    assert replayed(log, "people") == table.listed()
    log.close()

"""The shop example as users run it: a process of its own, reached over HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HEADWATER = Path(sys.executable).with_name("headwater")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        self.words = folder.with_name("words.txt")

    def start(self) -> None:
        with self.words.open("ab") as words:
            self._process = subprocess.Popen(
                [HEADWATER, "run", ROOT / "examples" / "shop.py", "--http", self.url.removeprefix("http://")],
                env={**os.environ, "SHOP_LOG": f"file:{self.folder}"},
                stderr=words,
                start_new_session=True,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self, *, whole_group: bool) -> None:
        """SIGKILL: of everything at once, or of the driver alone, whose JVM then finds itself orphaned."""
        if whole_group:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()

    def end_group(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill(whole_group=True)

    def group_is_gone(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def get(self, path: str, **query: str) -> Any:
        address = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            return json.load(answer)

    def post(self, path: str, rows: list[dict[str, Any]], *, give_up_at: float) -> Any:
        """Until it is acknowledged, through connections refused and cut."""
        body = "\n".join(json.dumps(row) for row in rows).encode()
        while time.monotonic() < give_up_at:
            request = urllib.request.Request(self.url + path, body, {"content-type": "application/x-ndjson"})
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    raise AssertionError(error.read().decode()) from None
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{path} was not acknowledged in time")

    def position(self) -> str:
        """What the view covers, or nothing while the server is not there."""
        assert self.process.poll() is None, f"the app ended:\n{self.words.read_text()[-6000:]}"
        try:
            return str(self.get("/views/by_page", limit="1")["position"])
        except OSError:
            return ""

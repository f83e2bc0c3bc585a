"""A real Redis server for tests, from Debian's `redis-server`: on loopback, its data in a folder that goes with it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from headwater.testing.postgres import ServerFailed

START_S = 30.0
POLL_S = 0.02


def program() -> str | None:
    return shutil.which("redis-server")


class RedisServer:
    """`with RedisServer() as server:` connect to `server.url()`. Every write is synced, so `kill` loses nothing."""

    def __init__(self, *, password: str | None = None, settings: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-redis-"))
        self.port = _free_port()
        self._password = password
        self._settings = {"appendonly": "yes", "appendfsync": "always", "save": "", **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: int = 0) -> str:
        who = f":{self._password}@" if self._password else ""
        return f"redis://{who}127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        where = program()
        if where is None:
            raise ServerFailed(why="there is no redis-server", do="Install it: apt install redis-server")
        settings = {**self._settings, "port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder)}
        if self._password:
            settings["requirepass"] = self._password
        given = [part for name, value in settings.items() for part in (f"--{name}", value)]
        with (self.folder / "server.log").open("a") as words:
            self._process = subprocess.Popen([where, *given], stdout=words, stderr=words)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                words_said = (self.folder / "server.log").read_text()[-2000:]
                raise ServerFailed(why=f"it does not start: {words_said}", do="Read what it says")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as asked:
                asked.sendall(b"PING\r\n")
                return asked.recv(5)[:5] in (b"+PONG", b"-NOAU")
        except OSError:
            return False

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

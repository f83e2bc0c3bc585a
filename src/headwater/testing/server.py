"""A server of our own for tests: a process on loopback, waited for until it answers; its files go when it goes.

FOLDER/server.log   what the server has said; beside it whatever a server of that kind keeps
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from headwater.errors import HeadwaterError

START_S = 60.0
POLL_S = 0.02
TAIL = 2000


class ServerFailed(HeadwaterError):
    """There is no server to test against, and why."""

    def __init__(self, *, server: str, why: str, do: str) -> None:
        super().__init__(f"no {server} server: {why}", do=do)
        self.server, self.why = server, why


class LocalServer:
    """A kind of server says what it is made of, what is run, and when it answers. `with` it, it runs; on leaving, the
    server and its folder are gone. It keeps its port, so `kill` and `start` are a crash and a restart."""

    kind: ClassVar[str]
    stopped_by: ClassVar[signal.Signals] = signal.SIGTERM
    left_by: ClassVar[signal.Signals] = signal.SIGKILL
    """How it is ended when its data is no longer wanted."""
    starts_again: ClassVar[bool] = False
    """Whether one that ends while it starts is started anew: what is left of a killed one may be in its way."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"headwater-{self.kind.lower()}-"))
        self.port = _free_port()
        self._user: str | None = None
        """Who runs it, if not we."""
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """What it needs before its first start."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Until it answers. After a kill, it recovers first."""
        deadline = time.monotonic() + START_S
        while not self._started(deadline):
            if not self.starts_again or time.monotonic() > deadline:
                raise self.failed(f"it does not start: {(self.folder / 'server.log').read_text()[-TAIL:]}")

    def _started(self, deadline: float) -> bool:
        with (self.folder / "server.log").open("a") as words:
            self._process = subprocess.Popen(self.command(), stdout=words, stderr=words, user=self._user, cwd="/")
        while self._process.poll() is None and time.monotonic() < deadline:
            if self.answers():
                return True
            time.sleep(POLL_S)
        return False

    def stop(self) -> None:
        """In order: what is connected is cut off, everything is written."""
        self._end(self.stopped_by)

    def kill(self) -> None:
        """kill -9; the next start recovers."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def run(self, *command: str) -> None:
        """One of its tools, to its end."""
        with tempfile.TemporaryFile("w+") as words:
            told = subprocess.run(command, stdout=words, stderr=words, user=self._user, cwd="/", check=False)
            if told.returncode != 0:
                words.seek(0)
                raise self.failed(f"{Path(command[0]).name} failed: {words.read()}")

    def failed(self, why: str) -> ServerFailed:
        return ServerFailed(server=self.kind, why=why, do="Read what it says")

    def __enter__(self) -> Self:
        self.make()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self.left_by)
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

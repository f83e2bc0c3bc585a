"""A real MariaDB server for tests and benchmarks, with a row-based binlog, from the programs of the Debian package.

FOLDER/data/        the databases and the binlog: a server on the same folder goes on with them
FOLDER/socket       its Unix socket; a root without a password may come in here and on loopback
FOLDER/server.log   what the server has said
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from headwater.errors import HeadwaterError

START_S = 60.0
POLL_S = 0.05

SETTINGS = {
    "log-bin": "binlog",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "bind-address": "127.0.0.1",
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "64M",
    "skip-name-resolve": "1",
}


class ServerFailed(HeadwaterError):
    """There is no server to test against, and why."""

    def __init__(self, *, why: str, do: str) -> None:
        super().__init__(f"no MariaDB server: {why}", do=do)
        self.why = why


def program(name: str) -> str | None:
    """Where one of the server's programs is; None if it is not installed."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class MariadbServer:
    """`with MariadbServer() as server:` connect to `server.url()`; on leaving, the server and its folder are gone."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        served, made = program("mariadbd"), program("mariadb-install-db")
        if served is None or made is None:
            raise ServerFailed(why="mariadbd is not installed", do="Run: apt-get install mariadb-server")
        self._programs = (served, made)
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-mariadb-"))
        self.data = self.folder / "data"
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {**SETTINGS, **(settings or {})}

    def url(self, database: str = "mysql", *, user: str = "root", password: str = "") -> str:
        login = f"{user}:{password}" if password else user
        return f"mariadb://{login}@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        given = ["--no-defaults", f"--datadir={self.data}", "--skip-test-db", "--skip-log-bin"]
        command = [self._programs[1], *given, "--auth-root-authentication-method=normal", *_as_root()]
        told = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if told.returncode != 0:
            raise ServerFailed(why=f"mariadb-install-db failed: {told.stdout.decode()}", do="Read what it says")

    def start(self) -> None:
        """Until it answers. After a kill, it recovers first."""
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        place = [f"--datadir={self.data}", f"--socket={self.folder / 'socket'}", f"--port={self.port}"]
        with (self.folder / "server.log").open("a") as words:
            command = [self._programs[0], "--no-defaults", *place, *options, *_as_root()]
            self._process = subprocess.Popen(command, stdout=words, stderr=words, cwd="/")
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                words_said = (self.folder / "server.log").read_text()[-2000:]
                raise ServerFailed(why=f"it does not start: {words_said}", do="Read what it says")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """In order: what is connected is cut off, everything is written."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9 of the server; the next start recovers."""
        self._end(signal.SIGKILL)

    def _answers(self) -> bool:
        """Whether it greets: a server that is still recovering does not listen."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as probe:
                return len(probe.recv(5)) == 5
        except OSError:
            return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def __enter__(self) -> MariadbServer:
        self.make()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def _as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

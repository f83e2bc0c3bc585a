"""A real MariaDB server for tests and benchmarks, with a row-based binlog, from the programs of the Debian package.

FOLDER/data/        the databases and the binlog: a server on the same folder goes on with them
FOLDER/socket       its Unix socket; a root without a password may come in here and on loopback
FOLDER/server.log   what the server has said
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping

from headwater.testing.server import LocalServer, ServerFailed

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


def program(name: str) -> str | None:
    """Where one of the server's programs is; None if it is not installed."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class MariadbServer(LocalServer):
    """`with MariadbServer() as server:` connect to `server.url()`; on leaving, the server and its folder are gone."""

    kind = "MariaDB"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        served, made = program("mariadbd"), program("mariadb-install-db")
        if served is None or made is None:
            raise ServerFailed(
                server=self.kind, why="mariadbd is not installed", do="Run: apt-get install mariadb-server"
            )
        super().__init__()
        self._programs = (served, made)
        self.data = self.folder / "data"
        self._settings = {**SETTINGS, **(settings or {})}

    def url(self, database: str = "mysql", *, user: str = "root", password: str = "") -> str:
        login = f"{user}:{password}" if password else user
        return f"mariadb://{login}@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        given = ["--no-defaults", f"--datadir={self.data}", "--skip-test-db", "--skip-log-bin"]
        self.run(self._programs[1], *given, "--auth-root-authentication-method=normal", *_as_root())

    def command(self) -> list[str]:
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        place = [f"--datadir={self.data}", f"--socket={self.folder / 'socket'}", f"--port={self.port}"]
        return [self._programs[0], "--no-defaults", *place, *options, *_as_root()]

    def answers(self) -> bool:
        """Whether it greets: a server that is still recovering does not listen."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as probe:
                return len(probe.recv(5)) == 5
        except OSError:
            return False


def _as_root() -> list[str]:
    return ["--user=root"] if os.geteuid() == 0 else []

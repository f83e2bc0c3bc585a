"""A real Redis server for tests, from Debian's `redis-server`: on loopback, its data in a folder that goes with it."""

from __future__ import annotations

import shutil
import socket

from headwater.testing.server import LocalServer, ServerFailed


def program() -> str | None:
    return shutil.which("redis-server")


class RedisServer(LocalServer):
    """`with RedisServer() as server:` connect to `server.url()`. Every write is synced, so `kill` loses nothing."""

    kind = "Redis"

    def __init__(self, *, password: str | None = None, settings: dict[str, str] | None = None) -> None:
        where = program()
        if where is None:
            raise ServerFailed(
                server=self.kind, why="there is no redis-server", do="Install it: apt install redis-server"
            )
        super().__init__()
        self._program = where
        self._password = password
        self._settings = {"appendonly": "yes", "appendfsync": "always", "save": "", **(settings or {})}

    def url(self, database: int = 0) -> str:
        who = f":{self._password}@" if self._password else ""
        return f"redis://{who}127.0.0.1:{self.port}/{database}"

    def command(self) -> list[str]:
        settings = {**self._settings, "port": str(self.port), "bind": "127.0.0.1", "dir": str(self.folder)}
        if self._password:
            settings["requirepass"] = self._password
        return [self._program, *(part for name, value in settings.items() for part in (f"--{name}", value))]

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as asked:
                asked.sendall(b"PING\r\n")
                return asked.recv(5)[:5] in (b"+PONG", b"-NOAU")
        except OSError:
            return False

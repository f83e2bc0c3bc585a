"""A real PostgreSQL server for tests and benchmarks, with logical decoding, from the binaries of the `pgserver` wheel.

    FOLDER/data/        the cluster: a server on the same folder goes on with it; also its Unix socket
    FOLDER/server.log   what the server has said

It listens on a Unix socket, which trusts everybody who may open it, and on loopback, where passwords are asked for.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from headwater.testing.server import LocalServer, ServerFailed

SERVANT = "nobody"
"""Who runs the server if we are root: PostgreSQL refuses to be."""

SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
}
ACCESS = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\nlocal replication all trust\n"


def binaries() -> Path | None:
    """Where the wheel has PostgreSQL's programs; None without the wheel."""
    found = importlib.util.find_spec("pgserver")
    return Path(found.origin).parent / "pginstall" / "bin" if found is not None and found.origin else None


class PostgresServer(LocalServer):
    """`with PostgresServer() as server:` connect to `server.url()`; on leaving, the server and its folder are gone."""

    kind = "PostgreSQL"
    stopped_by = signal.SIGINT
    left_by = signal.SIGQUIT
    starts_again = True  # children of a killed server hold its memory for a moment

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        where = binaries()
        if where is None:
            raise ServerFailed(
                server=self.kind, why="the pgserver wheel is missing", do="Install it: pip install pgserver"
            )
        super().__init__()
        self.programs = where
        self.data = self.folder / "data"
        self._settings = {**SETTINGS, **(settings or {}), "port": str(self.port)}
        if os.geteuid() == 0:
            self._user = SERVANT
            account = pwd.getpwnam(SERVANT)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self.folder.chmod(0o755)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.data}&port={self.port}"

    def url_with_password(self, user: str, password: str, database: str = "postgres") -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        given = ["-D", str(self.data), "--auth=trust", "--encoding=utf8", "-U", "postgres", "--no-sync"]
        self.run(str(self.programs / "initdb"), *given)
        lines = "".join(f"{name} = '{value}'\n" for name, value in self._settings.items())
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"unix_socket_directories = '{self.data}'\n{lines}")
        (self.data / "pg_hba.conf").write_text(ACCESS)

    def command(self) -> list[str]:
        return [str(self.programs / "postgres"), "-D", str(self.data)]

    def answers(self) -> bool:
        asked = [str(self.programs / "pg_isready"), "-q", "-h", str(self.data), "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

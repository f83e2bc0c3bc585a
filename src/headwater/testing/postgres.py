"""A real PostgreSQL server for tests and benchmarks, with logical decoding, from the binaries of the `pgserver` wheel.

    FOLDER/data/        the cluster: a server on the same folder goes on with it; also its Unix socket
    FOLDER/server.log   what the server has said

It listens on a Unix socket, which trusts everybody who may open it, and on loopback, where passwords are asked for.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
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


class ServerFailed(HeadwaterError):
    """There is no server to test against, and why."""

    def __init__(self, *, why: str, do: str) -> None:
        super().__init__(f"no PostgreSQL server: {why}", do=do)
        self.why = why


def binaries() -> Path | None:
    """Where the wheel has PostgreSQL's programs; None without the wheel."""
    found = importlib.util.find_spec("pgserver")
    return Path(found.origin).parent / "pginstall" / "bin" if found is not None and found.origin else None


class PostgresServer:
    """`with PostgresServer() as server:` connect to `server.url()`; on leaving, the server and its folder are gone."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        where = binaries()
        if where is None:
            raise ServerFailed(why="the pgserver wheel is missing", do="Install it: pip install pgserver")
        self.programs = where
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-pg-"))
        self.data = self.folder / "data"
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {**SETTINGS, **(settings or {}), "port": str(self.port)}
        self._user = SERVANT if os.geteuid() == 0 else None
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        self.folder.chmod(0o755)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.data}&port={self.port}"

    def url_with_password(self, user: str, password: str, database: str = "postgres") -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def make(self) -> None:
        self._run("initdb", "-D", str(self.data), "--auth=trust", "--encoding=utf8", "-U", "postgres", "--no-sync")
        lines = "".join(f"{name} = '{value}'\n" for name, value in self._settings.items())
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"unix_socket_directories = '{self.data}'\n{lines}")
        (self.data / "pg_hba.conf").write_text(ACCESS)

    def start(self) -> None:
        """Until it answers. After a kill, until the last of the killed server's processes has let go, too."""
        deadline = time.monotonic() + START_S
        while not self._start_once(deadline):
            if time.monotonic() > deadline:
                raise ServerFailed(why=f"it does not start: {self._words()}", do="Read what it says")

    def _start_once(self, deadline: float) -> bool:
        with (self.folder / "server.log").open("a") as words:
            self._process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.data)],
                stdout=words,
                stderr=words,
                user=self._user,
                cwd="/",
            )
        asked = [str(self.programs / "pg_isready"), "-q", "-h", str(self.data), "-p", str(self.port)]
        while self._process.poll() is None and time.monotonic() < deadline:
            if subprocess.run(asked, check=False).returncode == 0:
                return True
            time.sleep(POLL_S)
        return False

    def stop(self) -> None:
        """In order: what is connected is cut off, everything is written."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the server: its children notice and end, and the next start recovers."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def _words(self) -> str:
        log = self.folder / "server.log"
        return log.read_text()[-2000:] if log.exists() else ""

    def _run(self, program: str, *given: str) -> None:
        command = [str(self.programs / program), *given]
        with tempfile.TemporaryFile("w+") as words:
            told = subprocess.run(command, stdout=words, stderr=words, user=self._user, cwd="/", check=False)
            if told.returncode != 0:
                words.seek(0)
                raise ServerFailed(why=f"{program} failed: {words.read()}", do="Read what it says")

    def __enter__(self) -> PostgresServer:
        self.make()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""A real Kafka broker for tests and benchmarks: one node, KRaft, on loopback, from Maven's jars.

A fake would only repeat what we believe of Kafka. The jars are fetched once a version, with `mvn` and whatever
repository it is set up to use, and rest in the user's cache; every start after that takes some seconds.

    FOLDER/server.properties   what the broker was started with
    FOLDER/data/               its storage: a broker on the same folder goes on with it
    FOLDER/broker.log          what it and the tool that formats its storage have said
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

from headwater.errors import HeadwaterError
from headwater.testing.maven import Artifact, JarsMissing, jars

VERSION = "4.3.1"
FORMAT_S = 60.0
STOP_S = 30.0
POLL_S = 0.05
TAIL_LINES = 25

LOGGING = "1.7.36"
"""Kafka logs through this SLF4J and brings no binding: without one it is silent, also about why it does not start."""

# What Kafka's own start script gives the JVM, so that a benchmark meets the broker that users run.
JVM = (
    "-server",
    "-Xms1G",
    "-Xmx1G",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)

# One node cannot replicate, and its internal topics need not be spread: 50 partitions each would only slow the start.
ALONE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",  # a misspelt topic is an error, not a topic
}


class BrokerFailed(HeadwaterError):
    """There is no broker to test against, and why."""

    def __init__(self, *, why: str, do: str, tail: str = "") -> None:
        super().__init__(f"no Kafka broker: {why}", do=do)
        self.why, self.tail = why, tail
        if tail:
            self.args = (f"{self.args[0]}\nIts last words:\n{tail}",)


class KafkaBroker:
    """`with KafkaBroker(folder) as broker:` clients connect to `broker.bootstrap`; on leaving, the broker is gone.

    Its ports are its own from the first start to the end of the block, so `kill` and `start` are a crash and a restart
    that clients survive. Only what a client was told is durable survives a power cut: Kafka does not fsync, unless a
    topic is made with `flush.messages=1`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        version: str = VERSION,
        start_within_s: float = 60.0,
    ) -> None:
        """`settings` are lines of server.properties, over ours."""
        self.folder = folder.absolute()
        self.version = version
        self._settings = dict(settings or {})
        self._start_within_s = start_within_s
        self._ports: list[socket.socket] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{_number(self._ports[0])}"

    @property
    def log_file(self) -> Path:
        return self.folder / "broker.log"

    def __enter__(self) -> KafkaBroker:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ports = [_reserve(), _reserve()]
        try:
            self.start()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._release()

    def start(self) -> None:
        """Start, and return when the broker answers requests and takes part in its cluster; `BrokerFailed` if not."""
        if self._process is not None:
            raise BrokerFailed(why="it is running already", do="Stop or kill it before starting it again")
        classpath = str(_jars(self.version) / "*")
        properties = self._write_properties()
        with open(self.log_file, "ab") as words:
            if not (self.folder / "data" / "meta.properties").exists():
                self._format(classpath, properties, words)
            self._process = self._java([*JVM, "-cp", classpath, "kafka.Kafka", str(properties)], words)
        try:
            self._await_answer(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop as an operator would; a broker that does not go in time is killed. One that is not running stays so."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
            self._process = None
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Crash: the process gets no chance to say goodbye.

        The next `start` takes ten seconds, until the controller gives up the old incarnation; a test that has no time
        for that makes `broker.session.timeout.ms` shorter.
        """
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)
            self._process = None

    def _release(self) -> None:
        for port in self._ports:
            port.close()
        self._ports = []

    def _write_properties(self) -> Path:
        broker, controller = (f"127.0.0.1:{_number(port)}" for port in self._ports)
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "controller.listener.names": "CONTROLLER",
            # A quorum named here, not in the storage, may have another port when a folder is started again.
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self.folder / "data"),
            **ALONE,
            **self._settings,
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return file

    def _format(self, classpath: str, properties: Path, words: IO[bytes]) -> None:
        # Sixteen bytes, of which the first are letters: an id that began with a dash would be taken for an option.
        cluster = base64.urlsafe_b64encode(b"headwater" + os.urandom(7)).decode().rstrip("=")
        tool = ["-cp", classpath, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
        process = self._java(tool, words)
        try:
            code = process.wait(FORMAT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S)
            raise self._failed(f"formatting its storage took more than {FORMAT_S:g} s") from None
        if code != 0:
            raise self._failed(f"formatting its storage ended with code {code}")

    def _java(self, arguments: list[str], words: IO[bytes]) -> subprocess.Popen[bytes]:
        # In its own folder, because a JVM that crashes leaves its dump where it stands.
        return subprocess.Popen(
            [_java(), *arguments], stdin=subprocess.DEVNULL, stdout=words, stderr=words, cwd=self.folder
        )

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_within_s
        while not _is_member(_number(self._ports[0])):
            try:
                code = process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() > deadline:
                    raise self._failed(f"it did not answer within {self._start_within_s:g} s") from None
            else:
                raise self._failed(f"it ended with code {code} while starting")

    def _failed(self, why: str) -> BrokerFailed:
        tail = self.log_file.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return BrokerFailed(why=why, do=f"Look into {self.log_file}", tail="\n".join(tail))


# --- ports and readiness ------------------------------------------------------------------------------


def _reserve() -> socket.socket:
    """A free port that stays ours: bound and never listening, so that only who asks for this very port gets it.

    A port that was merely free a moment ago is sometimes given to another process before the JVM is up.
    """
    port = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind(("127.0.0.1", 0))
    return port


def _number(port: socket.socket) -> int:
    return int(port.getsockname()[1])


def _is_member(port: int) -> bool:
    """Whether the broker answers a Metadata request, and names a broker in it.

    Taking a connection is not enough: until the controller has let it in, the broker refuses to make topics.

        request   size i32 | api 3 i16 | version 0 i16 | correlation i32 | client id: none i16 -1 | topics: all i32 0
        response  size i32 | correlation i32 | brokers: count i32 | ...
    """
    request = struct.pack(">hhihi", 3, 0, 7, -1, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.makefile("rb").read(12)
    except OSError:
        return False
    return len(answer) == 12 and struct.unpack(">iii", answer)[2] > 0


# --- Java ---------------------------------------------------------------------------------------------


def _jars(version: str) -> Path:
    wanted = [Artifact("org.apache.kafka", "kafka_2.13", version), Artifact("org.slf4j", "slf4j-simple", LOGGING)]
    try:
        return jars(f"kafka-{version}", wanted)
    except JarsMissing as error:
        raise BrokerFailed(why=error.why, do=error.do, tail=error.tail) from error


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise BrokerFailed(why="it needs Java 17 or newer, found none", do="Install it: apt install openjdk-17-jre")
    return java

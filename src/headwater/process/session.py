"""The Spark session: settings that our protocol relies on, silence, and a clear word where Java is missing."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import JavaMissing, SparkLost
from headwater.process.plan import BUCKETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
JAVA_ENDS_S = 10.0
"""Its connections are closed a moment before it has ended."""
ARENAS = "2"
"""Heaps of the C library in the Java process and its workers. Spark has some 300 threads, and what they and Java's
compiler have freed would stay behind in up to eight heaps a core."""
MASTER = "HEADWATER_MASTER"
"""The environment variable that names another Spark master than this machine."""


def spark_session(app: str, *, words: Path, master: str | None = None) -> SparkSession:
    """The process's session; made at the first call, which takes some seconds.

    What the JVM and its workers say goes to the file `words`: the terminal is for ours.
    """
    _check_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    master = master or os.environ.get(MASTER) or "local[*]"
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("MALLOC_ARENA_MAX", ARENAS)
    from pyspark.sql import SparkSession

    from headwater.process.frames.sink import RowsSink
    from headwater.process.frames.source import RowsSource
    from headwater.process.frames.table import TableSource
    from headwater.process.keyed.sink import BlobSink
    from headwater.process.keyed.source import PackedSource

    builder = SparkSession.builder.master(master)
    for name, value in _settings(app).items():
        builder = builder.config(name, value)
    with _words_to(words):
        session = builder.getOrCreate()
    for source in (PackedSource, BlobSink, RowsSource, TableSource, RowsSink):
        session.dataSource.register(source)
    return session


@contextmanager
def stopped_after(session: SparkSession, *, words: Path) -> Iterator[None]:
    """Stops it in the end. If its Java process ends before that, what fails for this reason is told as `SparkLost`."""
    from py4j.protocol import Py4JNetworkError

    try:
        with _no_traces(session):
            yield
    except (Py4JNetworkError, ConnectionError) as error:
        code = _end_of_java(session, within_s=JAVA_ENDS_S)
        if code is None:
            raise
        raise SparkLost(code=code, words=str(words)) from error
    finally:
        if _end_of_java(session) is None:
            session.stop()
        else:
            _forget(session)


@contextmanager
def _no_traces(session: SparkSession) -> Iterator[None]:
    """Spark's libraries write tracebacks to the terminal when Java is gone; they raise as well, which is enough."""

    def is_not_py4j(record: logging.LogRecord) -> bool:
        return Path(record.pathname).parent.name != "py4j"

    accumulators = session.sparkContext._accumulatorServer
    accumulators.handle_error = lambda *_: None  # type: ignore[method-assign]
    root = logging.getLogger()
    root.addFilter(is_not_py4j)
    try:
        yield
    finally:
        root.removeFilter(is_not_py4j)


def _end_of_java(session: SparkSession, *, within_s: float = 0) -> int | None:
    """The exit code of the Java process that we have started; None if it lives, or is somebody else's."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None


def _forget(session: SparkSession) -> None:
    """As `stop`, without a word to a process that is gone: the next session of this process starts another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = session.sparkContext
    context._jsc = None
    context.stop()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _settings(app: str) -> dict[str, str]:
    quiet = Path(__file__).with_name("log4j2.properties").as_uri()
    cores = os.cpu_count() or 1
    return {
        "spark.app.name": f"headwater {app}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_REMEMBERED,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet} {_HEAP}",
        # As many as there are cores, so long as buckets come out even: see `bucket_labels`.
        "spark.sql.shuffle.partitions": str(max(n for n in range(1, BUCKETS + 1) if BUCKETS % n == 0 and n <= cores)),
        "spark.sql.session.timeZone": "UTC",
        # Hadoop starts a process for the mode of every file it makes; this way a batch makes half as many.
        "spark.sql.streaming.checkpointFileManagerClass": _FILES,
        "spark.python.worker.reuse": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": "headwater.process.daemon",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "true",
    }


_REMEMBERED = {
    # What Spark keeps for its pages, which we do not show: by itself the last thousand batches, 20 MB.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
}
_HEAP = "-XX:+UseSerialGC -Xms192m -Xmn96m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
"""Spark moves few bytes here and holds little (about 100 MB): a heap that stays near what is in it, on as many cores as
there are. By itself Java takes what it may and gives nothing back. It never goes below the size it began with, by
itself a 64th of the machine's memory, and dead objects among the old fill that up before they are looked for."""
_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextmanager
def _words_to(file: Path) -> Iterator[None]:
    """A process started inside has its standard output and error in the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for own, kept in zip((1, 2), saved, strict=True):
            os.dup2(kept, own)
            os.close(kept)
        os.close(target)


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise JavaMissing(found="none")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA:
        raise JavaMissing(found=told.splitlines()[0] if told else "one that does not start")

"""The Spark session: settings that our protocol relies on, silence, and a clear word where Java is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import JavaMissing
from headwater.process.plan import BUCKETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = 17
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


def _settings(app: str) -> dict[str, str]:
    quiet = Path(__file__).with_name("log4j2.properties").as_uri()
    cores = os.cpu_count() or 1
    return {
        "spark.app.name": f"headwater {app}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}",
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

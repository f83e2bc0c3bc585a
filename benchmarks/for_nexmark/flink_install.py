"""Where Flink comes from: PyFlink from PyPI into an environment of its own, the Parquet format's jars from Maven.

    ~/.cache/headwater/flink-VERSION/          the environment; has this name only when it is complete
    ~/.cache/headwater/flink-parquet-VERSION/  the jars

PyFlink asks for Beam, pandas and more, for functions in Python. We have none, so it gets what its control of the JVM
needs and nothing else: 380 MB, nearly all of it Flink itself, in place of a gigabyte.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.testing.maven import Artifact, jars

VERSION = "2.3.0"
HADOOP = "3.5.0"
"""Flink's Parquet reader takes its settings as Hadoop's."""

INSTALL_S = 900.0
NEEDED = (
    f"apache-flink=={VERSION}",
    f"apache-flink-libraries=={VERSION}",
    "py4j==0.10.9.7",
    "cloudpickle>=2.2",
    "python-dateutil>=2.8,<3",
    "pytz",
    "ruamel.yaml",
    "ruamel.yaml.clib",
    "six",
    "typing_extensions",
)


class FlinkFailed(HeadwaterError):
    """There is no Flink to measure against, or it did not do what it was asked, and why."""

    def __init__(self, *, why: str, do: str) -> None:
        super().__init__(f"Flink: {why}", do=do)
        self.why = why


def interpreter() -> Path:
    """The Python that has PyFlink."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"
    folder = cache / f"flink-{VERSION}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.part-", dir=cache) as part:
            made = Path(part) / "environment"
            _call([sys.executable, "-m", "venv", str(made)])
            _call([str(made / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", *NEEDED])
            try:
                made.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster: its environment is the same
                    raise
    return folder / "bin" / "python"


def classpath() -> str:
    nothing_else = ("*:*",)
    wanted = [
        Artifact("org.apache.flink", "flink-sql-parquet", VERSION, without=nothing_else),
        Artifact("org.apache.hadoop", "hadoop-client-api", HADOOP, without=nothing_else),
        Artifact("org.apache.hadoop", "hadoop-client-runtime", HADOOP, without=nothing_else),
    ]
    return str(jars(f"flink-parquet-{VERSION}", wanted) / "*")


def _call(command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_S)
    except subprocess.CalledProcessError as error:
        raise FlinkFailed(why=error.stderr.strip()[-1_000:], do="Check the network") from error
    except subprocess.TimeoutExpired:
        raise FlinkFailed(why=f"installing took more than {INSTALL_S:g} s", do="Check the network") from None

"""Flink as a peer, at its best on one machine: one warm JVM, Parquet files in, nothing out, state on the heap.

    write_files(folder, events(1_000_000))
    with Flink(folder) as flink:
        flink.measure("q4", events=1_000_000)      # Figures(seconds=..., source_seconds=...)

PyFlink is only the remote control: queries are SQL and run in Java. See `flink_install` for where it comes from.

Of the sources that were tried, Parquet without compression was the fastest, if not by much: 0.92 million bids, all
columns, into nothing in 0.39 s, with Snappy 0.51, CSV 0.51 (and that without a watermark), ORC 1.1 s. Each is the
better of two warm runs on two cores that others used too, whose other run was up to three times slower.

Bids are dealt to one file a task, which reads it from start to end, so that event time goes up in each task and no row
is late. The small topics have one file, and the second task nothing to read of them: with two, the faster task might
read both, the second one late.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from for_nexmark.flink_install import FlinkFailed, classpath, interpreter
from headwater.testing.nexmark.events import TOPICS, Events, side_input
from headwater.testing.nexmark.queries import QUERIES

TASKS = 2
HEAP = "6g"
STAGE_S = 900.0
STOP_S = 30.0
TAIL_CHARACTERS = 2_000

SETTINGS = {
    "parallelism.default": str(TASKS),
    "table.local-time-zone": "UTC",
    "restart-strategy.type": "none",
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}

BETTER = {"q16": {"table.optimizer.distinct-agg.split.enabled": "false"}}
"""Where a setting that is good for most is bad: many channels with few bids each took four times the CPU with it."""


@dataclass(frozen=True)
class Figures:
    events: int
    seconds: float
    """From the job's start to its end, without planning."""
    source_seconds: float
    """Of a job that only reads what the query reads, the same columns of the same topics."""

    @property
    def per_s(self) -> float:
        return self.events / self.seconds

    @property
    def per_s_without_source(self) -> float:
        """The time of a job is not the sum of its parts, so this is the most that can be said for Flink."""
        return self.events / max(self.seconds - self.source_seconds, 0.001)


# --- files --------------------------------------------------------------------------------------------


def write_files(folder: Path, blocks: Iterable[Events], *, tasks: int = TASKS) -> None:
    """FOLDER/TOPIC/N.parquet, of bids one for each task."""
    spread = {"person": 1, "auction": 1, "bid": tasks}
    writers = {}
    for topic, files in spread.items():
        (folder / topic).mkdir(parents=True)
        names = [folder / topic / f"{number}.parquet" for number in range(files)]
        writers[topic] = [pq.ParquetWriter(name, TOPICS[topic], compression="none") for name in names]
    for block in blocks:
        for topic, files in spread.items():
            rows: pa.Table = getattr(block, topic)
            share = -(-rows.num_rows // files)
            for number, writer in enumerate(writers[topic]):
                writer.write_table(rows.slice(number * share, share))
    for writer in (each for group in writers.values() for each in group):
        writer.close()
    (folder / "side_input").mkdir()
    side = side_input()
    # Valid from the start of all times, so that every bid finds its version of the row.
    since = pa.array([0] * side.num_rows).cast(pa.timestamp("us", "UTC"))
    pq.write_table(side.append_column("since", since), folder / "side_input" / "0.parquet", compression="none")


def _definition(topic: str, folder: Path) -> str:
    kinds = {pa.int64(): "BIGINT", pa.string(): "STRING"}
    columns = [f"`{field.name}` {kinds.get(field.type, 'TIMESTAMP(3)')}" for field in TOPICS[topic]]
    if topic == "side_input":
        columns[0] += " NOT NULL"
        columns += ["since TIMESTAMP(3)", "WATERMARK FOR since AS since", "PRIMARY KEY (`key`) NOT ENFORCED"]
    else:
        columns += ["WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"]
    return (
        f"CREATE TEMPORARY TABLE {topic} ({', '.join(columns)}) WITH ('connector' = 'filesystem', "
        f"'path' = '{(folder / topic).absolute().as_uri()}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')"
    )


# --- a running Flink ----------------------------------------------------------------------------------


class Flink:
    """One JVM for as many queries as one likes, over the files of one folder. Its words are in `log`, also after it."""

    def __init__(self, files: Path, *, settings: Mapping[str, str] | None = None, log: Path | None = None) -> None:
        """`settings` are Flink's, over ours."""
        self._files = files
        self._work = Path(tempfile.mkdtemp(prefix="flink-"))
        checkpoints = (self._work / "checkpoints").as_uri()
        self._settings = {**SETTINGS, "execution.checkpointing.dir": checkpoints, **(settings or {})}
        self.log = log or files / "flink.log"

    def __enter__(self) -> Flink:
        environment = {
            **os.environ,
            "HADOOP_CLASSPATH": classpath(),
            "JVM_ARGS": f"-Xms{HEAP} -Xmx{HEAP}",
            "FLINK_LOG_DIR": str(self._work),
            "_python_worker_execution_mode": "process",  # else it starts a server for functions in Python
        }
        with open(self.log, "ab") as words:
            self._process = subprocess.Popen(
                [str(interpreter()), str(Path(__file__).with_name("flink_child.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env=environment,
                start_new_session=True,
            )
        try:
            self._hear()
            self.ask("set", settings=self._settings)
            for topic in TOPICS:
                self.ask("execute", sql=_definition(topic, self._files))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def measure(self, query: str, *, events: int, rounds: int = 3) -> Figures:
        """The fastest of so many rounds, after one that warms up; the reference's own text where it is faster."""
        sql = QUERIES[query].flink_at_its_best
        assert sql is not None, f"Flink has no {query}"
        self.ask("set", settings={**self._settings, **BETTER.get(query, {})})
        reads = [f"SELECT {_quoted(columns)} FROM {topic}" for topic, columns in self.ask("scans", sql=sql)]
        return Figures(events, self._fastest([sql], rounds), self._fastest(reads, rounds))

    def changes(self, sql: str, file: Path) -> int:
        """Write the changes of a query's answer, as lines of JSON: [kind, values]; how many there were."""
        count: int = self.ask("changes", sql=sql, file=str(file))
        return count

    def ask(self, do: str, **wish: Any) -> Any:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # then there is no answer either, and that is told
            self._process.stdin.write(json.dumps({"do": do, **wish}).encode() + b"\n")
            self._process.stdin.flush()
        return self._hear()

    def _fastest(self, queries: list[str], rounds: int) -> float:
        return min([self.ask("run", queries=queries) for _ in range(rounds + 1)][1:])

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        # An answer is one line, written at once, and none comes before its question: nothing waits in Python's buffer.
        if not select.select([self._process.stdout], [], [], STAGE_S)[0]:
            raise FlinkFailed(why=f"it said nothing for {STAGE_S:g} s", do=f"Look into {self.log}")
        line = self._process.stdout.readline()
        if not line:
            raise FlinkFailed(why="it ended without a word", do=f"Look into {self.log}")
        told = json.loads(line)
        if "error" in told:
            raise FlinkFailed(why=told["error"][-TAIL_CHARACTERS:], do=f"Look into {self.log}")
        return told["answer"]

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()  # the child ends with its input, and the JVM with the child
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        with suppress(ProcessLookupError):  # the next to be measured has the cores to itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_S)
        self._process.stdout.close()
        shutil.rmtree(self._work, ignore_errors=True)


def measure(query: str, files: Path, *, events: int) -> Figures:
    """One query in a Flink of its own; for several, one `Flink` is warmer and starts once."""
    with Flink(files) as flink:
        return flink.measure(query, events=events)


def _quoted(columns: list[str]) -> str:
    return ", ".join(f"`{column}`" for column in columns)

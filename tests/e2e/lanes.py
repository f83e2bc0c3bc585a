"""An app with a pipeline in each lane (two_lanes.py), and maybe views in SQL (many_views.py), as users run it: in a
process of its own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import duckdb

import headwater as hw
from headwater.log import Topic, TopicSpec
from headwater.process.source import FEW
from headwater.records import schema_of

HEADWATER = Path(sys.executable).with_name("headwater")
USERS = 50
_PER_USER = "SELECT user_id, count(*) AS n, max(price) AS most FROM buys GROUP BY user_id"
VIEWS = {
    "per_user": ("user_id, n, most", _PER_USER),
    "how_many": ("n, users", f"SELECT n, count(*) AS users FROM ({_PER_USER}) GROUP BY n"),
    "by_name": (
        "name, n, prices",
        "SELECT name, count(*) AS n, count(DISTINCT price) AS prices"
        " FROM buys JOIN users USING (user_id) GROUP BY name",
    ),
}
"""Of each view of many_views.py its columns and, for DuckDB, what it is."""


def _with_tests() -> str:
    return os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])


class Lanes:
    def __init__(self, folder: Path, seed: int, file: str = "two_lanes.py") -> None:
        self.folder = folder
        self._file = Path(__file__).with_name(file)
        self._views = VIEWS if file == "many_views.py" else {}
        self.words = folder.with_name("words.txt")
        self.chance = random.Random(seed)
        self.log = log = hw.open(f"file:{folder}")
        columns = {"id": "int64", "user_id": "int64", "price": "float64"}
        self._buys = Topic(log, log.create(TopicSpec("buys", schema_of(columns), key=("user_id",))))
        columns = {"user_id": "int64", "name": "string"}
        spec = TopicSpec("users", schema_of(columns), key=("user_id",), kind="table", upsert=True)
        Topic(log, log.create(spec)).upsert([{"user_id": user, "name": f"user {user}"} for user in range(USERS)])
        self._made = 0
        self._process: subprocess.Popen[bytes] | None = None

    def more(self, count: int) -> None:
        numbers = range(self._made, self._made + count)
        self._buys.append(
            [{"id": n, "user_id": self.chance.randrange(USERS), "price": self.chance.random()} for n in numbers]
        )
        self._made += count

    # --- the app ---

    def start(self, *more: str, few: bool = True) -> subprocess.Popen[bytes]:
        """Without `few`, Spark runs every batch."""
        own = {"LANES_LOG": f"file:{self.folder}", "PYTHONPATH": _with_tests(), **({} if few else {FEW: "0"})}
        with self.words.open("ab") as words:
            self._process = subprocess.Popen(
                [HEADWATER, "run", self._file, "--http", "off", *more],
                env={**os.environ, **own},
                stderr=words,
                start_new_session=True,
            )
        return self._process

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def written(self) -> int:
        """How many records its pipelines have written. Without an app that writes there is no use in waiting."""
        assert self.process.poll() is None, f"the app ended:\n{self.words.read_text()[-6000:]}"
        return self.derived()

    def derived(self) -> int:
        known = {spec.name for spec in self.log.topics()}
        return self.log.snapshot([name for name in ("named", "spent") if name in known]).position.total

    def are_caught_up(self) -> bool:
        self.written()
        goal = self.log.snapshot(["buys"]).position
        done = [self.log.covered(f"{folder.parent.name}@{folder.name}") for folder in self._pipelines()]
        return len(done) == 2 and all(each is not None and each.progress.end.covers(goal) for each in done)

    def batches(self) -> int:
        """That Spark has planned, of both."""
        return sum(1 for file in self.folder.glob("**/checkpoint/offsets/*") if file.name.isdigit())

    def _pipelines(self) -> list[Path]:
        return list(self.folder.glob("pipelines/*/*/"))

    def processes(self) -> dict[int, str]:
        """All that the app has started and that still live, itself among them, and their commands: those of its
        session. Spark's workers have a process group of their own."""
        found = {}
        for each in Path("/proc").iterdir():
            try:
                if each.name.isdigit() and os.getsid(int(each.name)) == self.process.pid:
                    state = (each / "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z":
                        found[int(each.name)] = (each / "cmdline").read_text().replace("\0", " ")
            except (ProcessLookupError, FileNotFoundError):
                continue  # it has just ended
        return found

    def cpu_s(self) -> dict[int, float]:
        """What each of them has used up to now."""
        used = {}
        for process in self.processes():
            try:
                about = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            except FileNotFoundError:
                continue
            used[process] = sum(map(int, about[11:13])) / os.sysconf("SC_CLK_TCK")  # user and system
        return used

    def jvm(self) -> int:
        """The first of its name: a command that it is just starting has the same, for a moment."""
        return min(process for process, command in self.processes().items() if "org.apache.spark" in command)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self.log.close()

    # --- the answer ---

    def check(self) -> None:
        """What is derived is what DuckDB and plain Python make of the log."""
        given, named, spent = (Topic(self.log, self.log.topic(name)).read() for name in ("buys", "named", "spent"))
        oracle = duckdb.connect()
        oracle.register("buys", given)
        oracle.register("named", named)
        oracle.register("spent", spent)
        assert given.num_rows == self._made
        joined = oracle.execute("SELECT id, name FROM named ORDER BY id").fetchall()
        assert joined == oracle.execute("SELECT id, 'user ' || user_id FROM buys ORDER BY id").fetchall()
        totals: dict[int, tuple[float, int]] = {}
        for row in sorted(given.to_pylist(), key=lambda row: (row["_partition"], row["_offset"])):
            total, n = totals.get(row["user_id"], (0.0, 0))
            totals[row["user_id"]] = total + row["price"], n + 1
        summed = "SELECT user_id, total, n FROM spent GROUP BY ALL HAVING sum(_weight) <> 0 ORDER BY user_id"
        assert oracle.execute(summed).fetchall() == [(user, *total) for user, total in sorted(totals.items())]
        self._check_views(oracle)

    def _check_views(self, oracle: duckdb.DuckDBPyConnection) -> None:
        oracle.execute(f"CREATE VIEW users AS SELECT range AS user_id, 'user ' || range AS name FROM range({USERS})")
        for name, (columns, sql) in self._views.items():
            oracle.register("changes", Topic(self.log, self.log.topic(name)).read())
            net = f"SELECT {columns}, sum(_weight) AS w FROM changes GROUP BY ALL HAVING w <> 0 ORDER BY ALL"
            assert oracle.execute(net).fetchall() == oracle.execute(f"SELECT *, 1 FROM ({sql}) ORDER BY ALL").fetchall()

"""A person is forgotten everywhere: every file below the data folder is searched, views are held against DuckDB."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

import headwater as hw
from headwater.errors import AppRunning
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.queues import EmbeddedQueues
from headwater.process import session as sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ERIKA = 7
CANARY = "erika.mustermann@example.org"
BY_PAGE = "SELECT page, count(*) AS n, count(DISTINCT user_id) AS people, max(email) AS last FROM clicks GROUP BY page"
PEOPLE = "SELECT user_id, email, count(*) AS n FROM clicks GROUP BY user_id, email"
BUSIEST = "SELECT n, count(*) AS people, max(email) AS one FROM people GROUP BY n"
ROOMS = "SELECT room, count(*) AS n FROM visits GROUP BY room"


@pytest.fixture(autouse=True)
def one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apps start and stop Spark; here all of them share the suite's."""
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(sessions, "spark_session", lambda *given, **named: spark)


def shop(folder: Path) -> hw.App:
    app = hw.App("shop", log=f"file:{folder}")
    columns = {"user_id": "int64", "email": "string", "page": "string", "at": "timestamp"}
    app.topic("clicks", columns, key="user_id", time="at")
    app.topic("visits", {"room": "string"}, key="room")
    app.view("by_page", sql=BY_PAGE)
    app.view("people", sql=PEOPLE, key=("user_id", "email"))
    app.view("busiest", sql=BUSIEST)
    app.view("rooms", sql=ROOMS)  # nobody's data, but in the same Spark query as `by_page`
    app.view("on_time", sql="SELECT email, count(*) AS n FROM clicks GROUP BY email", retain="1 hour")

    @app.stream("named", {"user_id": "int64", "who": "string"}, key="user_id")
    def named(clicks: DataFrame) -> DataFrame:
        return clicks.selectExpr("user_id", "concat(email, ' on ', page) AS who")

    @app.fold("last_page", {"page": "string"}, of="clicks", initial={"page": ""}, on_error="dead")
    def last_page(state: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
        if record["page"] == "/broken":
            raise ValueError(record["email"])
        return {"page": f"{record['email']} at {record['page']}"}

    return app


def click(user: int, page: str, second: int) -> dict[str, Any]:
    email = CANARY if user == ERIKA else f"user{user}@example.com"
    return {
        "user_id": user,
        "email": email,
        "page": page,
        "at": f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:00Z",
    }


def fill(app: hw.App) -> None:
    clicks = app.topics["clicks"]
    clicks.append([click(number % 20, f"/{number % 3}", number) for number in range(4000)])
    clicks.append([click(user, "/broken", 0) for user in (ERIKA, 8)])
    clicks.append([click(user, "/later", 86_000) for user in range(20)])
    clicks.append([click(user, "/0", 60) for user in (ERIKA, 8)])  # too late for on_time
    app.topics["visits"].append([{"room": f"room {number % 3}"} for number in range(30)])
    assert isinstance(app.log, EmbeddedLog)
    queues = EmbeddedQueues(app.log)
    queues.create("work", "clicks")
    for delivery in queues.take("work", 60):
        queues.reject("work", delivery.receipt)


# --- searching ---

ZSTD, LZ4, ZIP = b"\x28\xb5\x2f\xfd", b"LZ4Block", b"PK\x03\x04"
PIECE = 1024


def unpacked(data: bytes) -> Iterator[bytes]:
    """These bytes, and all that is compressed in them: as zstd, as LZ4 in Java's frames, or as a zip file."""
    yield data
    if LZ4 in data:
        yield from unpacked(b"".join(_lz4(data, place) for place in _places(data, LZ4)))
    for place in _places(data, ZSTD):
        yield _zstd(data, place)
    if data.startswith(ZIP):
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            for name in packed.namelist():
                yield from unpacked(packed.read(name))


def _places(data: bytes, magic: bytes) -> Iterator[int]:
    place = data.find(magic)
    while place >= 0:
        yield place
        place = data.find(magic, place + 1)


def _zstd(data: bytes, place: int) -> bytes:
    """As far as it can be read: other bytes follow, or these are no frame at all."""
    found = b""
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(data[place:]), "zstd")
        while piece := stream.read(PIECE):
            found += piece
    except (OSError, pa.ArrowInvalid):
        pass
    return found


def _lz4(data: bytes, place: int) -> bytes:
    """One block: magic, how it is packed, its size packed and plain, a checksum."""
    how, (packed, size) = (
        data[place + 8],
        (int.from_bytes(data[place + at : place + at + 4], "little") for at in (9, 13)),
    )
    body = data[place + 21 : place + 21 + packed]
    return body if how & 0xF0 == 0x10 else bytes(pa.Codec("lz4_raw").decompress(body, size, asbytes=True))


def rows_of(file: Path) -> str:
    """Of a chunk, which Arrow or Parquet compress in their own ways."""
    read: dict[str, Callable[[], pa.Table]] = {
        ".parquet": lambda: pq.read_table(file),
        ".arrow": lambda: ipc.open_file(pa.memory_map(str(file))).read_all(),
    }
    return str(read[file.suffix]().to_pylist()) if file.suffix in read else ""


def files_with(canary: str, folder: Path) -> set[str]:
    found = set()
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            if any(canary.encode() in part for part in unpacked(data)) or canary in rows_of(file):
                found.add(str(file.relative_to(folder)))
    return found


# --- what is expected ---


def expected(app: hw.App, sql: str) -> list[tuple[Any, ...]]:
    oracle = duckdb.connect()
    oracle.register("clicks", app.topics["clicks"].read())
    oracle.register("visits", app.topics["visits"].read())
    oracle.execute(f"CREATE VIEW people AS {PEOPLE}")
    return sorted(oracle.execute(sql).fetchall())


def served(app: hw.App, view: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in app.views[view].read().to_pylist())


def check_views(app: hw.App) -> None:
    for view, sql in {"by_page": BY_PAGE, "people": PEOPLE, "busiest": BUSIEST, "rooms": ROOMS}.items():
        assert served(app, view) == expected(app, sql), view


def test_a_person_is_forgotten_everywhere(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with shop(folder) as app:
        fill(app)
        app.run(until="caught-up")
        check_views(app)
        assert isinstance(app.log, EmbeddedLog)
        app.log.catalog.truncate_wal()
        found = files_with(CANARY, folder)
        kinds = {"catalog.db", "chunks/", "pipelines/people/", "stores/people@"}
        assert {kind for kind in kinds if any(name.startswith(kind) for name in found)} == kinds, "the search finds it"
        assert any("/kept/" in name for name in found), "in the state"
        others = [row for row in app.topics["clicks"].read().to_pylist() if row["user_id"] != ERIKA]
        copies = [app.topics["clicks"], hw.Topic(app.log, app.log.topic("work.dead"))]
        hers = sum(each.read()["user_id"].to_pylist().count(ERIKA) for each in copies)
        before = {row["user_id"]: row for row in app.views["last_page"].read().to_pylist()}

        planned = hw.forget(app, "clicks", keys=[{"user_id": ERIKA}], dry_run=True)
        assert files_with(CANARY, folder) == found, "nothing was changed"

        report = hw.forget(app, "clicks", keys=[{"user_id": ERIKA}])

        assert files_with(CANARY, folder) == set()
        assert app.topics["clicks"].read().to_pylist() == others, "all others, at their offsets"
        check_views(app)
        after = {row["user_id"]: row for row in app.views["last_page"].read().to_pylist()}
        assert after == {user: row for user, row in before.items() if user != ERIKA}
        assert {row["email"] for row in app.views["on_time"].read().to_pylist()} == {row["email"] for row in others}
        assert planned.records == report.records == hers
        assert {each.view for each in report.built_again if each.built} == {*app.derived} - {"rooms"}
        gone = {each.where for each in report.removed}
        assert "topic rooms" not in gone, "it only shares a query"
        assert {
            "topic clicks",
            "topic work.dead",
            "topic by_page",
            "topic on_time.late",
            "topic last_page.dead",
        } <= gone
        assert CANARY not in str(report)
        letters = app.log.topic("last_page.v2.dead")
        assert hw.Topic(app.log, letters).read().num_rows == 1, "user 8's is there again"

    with shop(folder) as app:  # and it goes on
        refused = []

        def say(text: str) -> None:
            with pytest.raises(AppRunning) as told:
                hw.forget(app.log, "clicks", keys=[{"user_id": 3}])
            refused.append(told.value)

        app.topics["clicks"].append([click(3, "/0", 100)])
        app.run(until="caught-up", say=say)
        check_views(app)
        assert refused, "while it runs, nothing is forgotten"

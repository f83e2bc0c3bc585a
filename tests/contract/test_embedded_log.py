"""The embedded log keeps the contract of all logs, and its own promises about files."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import BadLogUrl, Corrupt, NewerFormat, StorageFailed, TopicNotFound
from headwater.log import Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.disk import Disk
from headwater.log.position import AppendNumber
from headwater.log.protocol import Part
from headwater.log.spec import Settings
from headwater.records import schema_of
from headwater.testing.log_contract import CLICKS, LogContract, click


class TestEmbeddedLog(LogContract):
    pass


MANY = pa.table({"user_id": range(40_000), "page": ["/a/rather/long/page"] * 40_000})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "log"


def clicks_in(log: hw.Log) -> Topic:
    return Topic(log, log.create(CLICKS))


def test_a_reopened_log_has_everything_that_was_acknowledged(folder: Path) -> None:
    first = hw.open(f"file:{folder}")
    clicks_in(first).append(MANY)
    clicks_in(first).append([click(1)])
    first.close()
    again = hw.open(f"file:{folder}")
    assert clicks_in(again).read().num_rows == 40_001


def test_many_processes_append_at_once_and_nothing_is_lost_or_doubled(folder: Path) -> None:
    clicks_in(hw.open(f"file:{folder}"))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.starmap(_append_some, [(str(folder), writer) for writer in range(3)])
    read = clicks_in(hw.open(f"file:{folder}")).read()
    assert sorted(read["user_id"].to_pylist()) == list(range(300))


def _append_some(folder: str, writer: int) -> None:
    topic = clicks_in(hw.open(f"file:{folder}"))
    for n in range(100):
        topic.append([click(writer * 100 + n)])


def test_threads_share_one_log(log: hw.Log) -> None:
    topic = clicks_in(log)
    threads = [threading.Thread(target=lambda: [topic.append([click(n)]) for n in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert topic.read().num_rows == 200


def test_a_waiting_reader_wakes_soon_after_an_append_elsewhere(folder: Path) -> None:
    log = hw.open(f"file:{folder}")
    writer = clicks_in(hw.open(f"file:{folder}"))  # another connection, as another process has
    woken: list[float] = []
    thread = threading.Thread(target=lambda: [log.wait(AppendNumber(0), 10), woken.append(time.monotonic())])
    thread.start()
    writer.append([click(1)])
    acknowledged = time.monotonic()
    thread.join()
    assert woken[0] - acknowledged < 0.5


@pytest.mark.parametrize("where", [0, 0.3, 0.6, 0.999])
def test_a_flipped_byte_in_a_chunk_file_is_noticed(folder: Path, where: float) -> None:
    clicks_in(hw.open(f"file:{folder}")).append(MANY)
    file = sorted((folder / "chunks").rglob("*.arrow"))[0]
    _flip(file, int(where * file.stat().st_size))
    with pytest.raises(Corrupt, match="the chunk in .*arrow is damaged"):
        clicks_in(hw.open(f"file:{folder}")).read()


def _flip(file: Path, where: int) -> None:
    content = bytearray(file.read_bytes())
    content[where] ^= 0xFF
    file.write_bytes(content)


def test_a_flipped_byte_in_an_inlined_chunk_is_noticed(folder: Path) -> None:
    clicks_in(hw.open(f"file:{folder}")).append([click(1)])
    with EmbeddedLog(folder).catalog.write() as catalog:
        data = bytearray(catalog.execute("SELECT data FROM chunks").get)
        data[len(data) // 2] ^= 1
        catalog.execute("UPDATE chunks SET data = ?", (bytes(data),))
    with pytest.raises(Corrupt, match="the inlined chunk of 'clicks', partition 0, offset 0"):
        clicks_in(hw.open(f"file:{folder}")).read()


def test_a_missing_chunk_file_is_a_loud_error(folder: Path) -> None:
    clicks_in(hw.open(f"file:{folder}")).append(MANY)
    sorted((folder / "chunks").rglob("*.arrow"))[0].unlink()
    with pytest.raises(Corrupt, match="its file is missing"):
        clicks_in(hw.open(f"file:{folder}")).read()


def test_a_staged_file_that_is_gone_is_not_appended(folder: Path) -> None:
    log = hw.open(f"file:{folder}")
    parts = clicks_in(log).parts(MANY)
    for part in parts:
        os.unlink(folder / str(part.file))
    with pytest.raises(Corrupt, match="the staged chunk"):
        log.append(parts)
    assert clicks_in(log).read().num_rows == 0


def test_a_file_that_no_row_lists_is_not_read(folder: Path) -> None:
    log = hw.open(f"file:{folder}")
    clicks_in(log).parts(MANY)  # staged, never appended: what a crash before step 6 leaves
    assert clicks_in(hw.open(f"file:{folder}")).read().num_rows == 0


class FullDisk(Disk):
    def write(self, name: str, data: object) -> None:
        raise StorageFailed(act="writing", file=name, why="No space left on device")


def test_a_full_disk_acknowledges_nothing_and_loses_nothing(folder: Path) -> None:
    clicks_in(hw.open(f"file:{folder}")).append([click(1)])
    full = clicks_in(EmbeddedLog(folder, disk=FullDisk(folder)))
    with pytest.raises(StorageFailed, match="No space left on device; nothing was appended"):
        full.append(MANY)
    assert clicks_in(hw.open(f"file:{folder}")).read()["user_id"].to_pylist() == [1]


def test_a_catalog_of_a_newer_format_is_not_touched(folder: Path) -> None:
    with EmbeddedLog(folder).catalog.write() as catalog:
        catalog.pragma("user_version", 99)
    with pytest.raises(NewerFormat, match="has format 99, this Headwater knows 2. Upgrade"):
        hw.open(f"file:{folder}")


def test_a_catalog_that_is_none_is_told(folder: Path) -> None:
    folder.mkdir()
    (folder / "catalog.db").write_bytes(b"not a database at all, but long enough to be read as one" * 100)
    with pytest.raises(Corrupt, match=r"the catalog in .*catalog.db is damaged"):
        hw.open(f"file:{folder}")


@pytest.mark.parametrize("url", ["data", "file:", "kafka://here", "s3:bucket"])
def test_a_url_that_is_no_log_is_refused(url: str) -> None:
    with pytest.raises(BadLogUrl, match="Give a folder as 'file:PATH'"):
        hw.open(url)


def test_the_time_of_appends_never_goes_back(folder: Path) -> None:
    times = iter([3_000_000, 1_000_000, 5_000_000])
    log = EmbeddedLog(folder, clock=lambda: next(times))
    topic = Topic(log, log.create(TopicSpec("t", CLICKS.schema, partitions=1)))
    for n in range(3):
        topic.append([click(n)])
    assert [value.timestamp() for value in topic.read()["_appended_at"].to_pylist()] == [3, 3, 5]


def test_acknowledged_appends_survive_a_killed_writer(folder: Path, until: Callable[..., None]) -> None:
    clicks_in(hw.open(f"file:{folder}"))
    context = multiprocessing.get_context("spawn")
    acknowledged = context.Value("i", 0)
    writer = context.Process(target=_append_until_killed, args=(str(folder), acknowledged))
    writer.start()
    until(lambda: acknowledged.value >= 50, what="50 acknowledged appends")
    writer.kill()
    writer.join()
    read = sorted(clicks_in(hw.open(f"file:{folder}")).read()["user_id"].to_pylist())
    assert read == list(range(len(read)))
    assert len(read) - acknowledged.value in (0, 1)  # the last one may have been durable and not yet acknowledged


def _append_until_killed(folder: str, acknowledged: object) -> None:
    topic = clicks_in(hw.open(f"file:{folder}"))
    for n in range(100_000):
        topic.append([click(n)])
        acknowledged.value = n + 1  # type: ignore[attr-defined]


def test_an_interrupted_writer_keeps_nobody_waiting(log: hw.Log, until: Callable[..., None]) -> None:
    topic, inside, go_on = clicks_in(log), threading.Event(), threading.Event()
    holder = threading.Thread(target=log.committer.run, args=(lambda catalog: [inside.set(), go_on.wait(30)],))  # type: ignore[attr-defined]
    holder.start()
    assert inside.wait(10)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            topic.append([click(1)])  # waits for its turn behind the holder
    finally:
        signal.signal(signal.SIGALRM, before)
    go_on.set()
    holder.join()
    topic.append([click(2)])
    assert topic.read()["user_id"].to_pylist() == [2]


def test_rows_for_a_topic_that_another_process_bounded_meanwhile(tmp_path: Path) -> None:
    log = hw.open(f"file:{tmp_path}")
    topic = log.create(TopicSpec("t", schema_of({"a": "int64"})))
    Topic(log, topic).append([{"a": 1}])
    other = hw.open(f"file:{tmp_path}")
    other.alter("t", settings=Settings(most_rows=2, when_full="drop_oldest"))
    for value in (2, 3):
        Topic(log, topic).append([{"a": value}])
    assert Topic(log, topic).read().column("a").to_pylist() == [2, 3]


def test_rows_for_a_topic_that_another_process_deleted_meanwhile(tmp_path: Path) -> None:
    log = hw.open(f"file:{tmp_path}")
    topic = log.create(TopicSpec("t", schema_of({"a": "int64"})))
    Topic(log, topic).append([{"a": 1}])
    hw.open(f"file:{tmp_path}").delete("t")
    with pytest.raises(TopicNotFound):
        Topic(log, topic).append([{"a": 1}])


def test_what_is_staged_can_be_read_before_it_is_appended(log: hw.Log) -> None:
    spec = log.create(TopicSpec("clicks", pa.schema([("n", pa.int64())])))
    for rows in (3, 100_000):  # travelling along, and in a file
        part = log.stage("clicks", 0, pa.RecordBatch.from_arrays([pa.array(range(rows))], schema=spec.stored))
        assert [batch.num_rows for batch in log.peek(part)] == [rows]
    assert log.extents("clicks")[0].end == 0


@pytest.mark.parametrize("count", [1, 40, 200])
@pytest.mark.parametrize("kind", ["string", "int64", "timestamp"])
def test_rows_are_staged_as_their_batch_would_be(tmp_path: Path, kind: str, count: int) -> None:
    """By Python's own means or by Arrow: to the same partitions, in the same order, with the same keys counted."""
    log = EmbeddedLog(tmp_path / "log")
    keys: dict[str, Any] = {"string": str, "int64": int, "timestamp": lambda n: datetime.fromtimestamp(n, UTC)}
    spec = TopicSpec("t", schema_of({"k": kind, "v": "int64"}), key=("k",), versioned=True)
    topic = Topic(log, log.create(spec))
    rows = [{"k": keys[kind](number % 7), "v": number} for number in range(count)]

    def content(parts: list[Part]) -> list[Any]:
        return sorted((part.partition, part.keys, [b.to_pylist() for b in log.peek(part)]) for part in parts)

    assert content(log.stage_rows("t", rows)) == content(topic.parts(rows))
    log.close()

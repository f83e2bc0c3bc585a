"""Upkeep changes how records rest. What is read before, during and after it is the same, but for what was to go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import BadSchema, Compacted, Missed, Pinned
from headwater.log import Position, Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog, read
from headwater.log.embedded.upkeep import keys, rollup
from headwater.log.embedded.verify import verify
from headwater.log.position import AppendNumber, Epoch
from headwater.log.protocol import KEYED, Producer
from headwater.records import schema_of, to_batch

SECOND = 1_000_000
CLICKS = schema_of({"user_id": "int64", "page": "string", "at": "timestamp"})
USERS = schema_of({"user_id": "int64", "name": "string", "tags": "list<string>"})


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(tmp_path / "log", clock=clock)
    yield opened
    opened.close()


def stream(log: EmbeddedLog, **given: Any) -> Topic:
    return Topic(log, log.create(TopicSpec("clicks", CLICKS, key=("user_id",), time="at", partitions=2, **given)))


def table(log: EmbeddedLog, **given: Any) -> Topic:
    return Topic(log, log.create(TopicSpec("users", USERS, key=("user_id",), kind="table", partitions=1, **given)))


def click(number: int, page: str = "/") -> dict[str, Any]:
    return {"user_id": number, "page": page, "at": f"2026-01-01T00:00:{number % 60:02}Z"}


def chunk_count(log: EmbeddedLog) -> int:
    with log.catalog.read() as catalog:
        return int(catalog.execute("SELECT count(*) FROM chunks").get)


def everything(log: EmbeddedLog, topic: Topic) -> tuple[list[dict[str, Any]], list[Any], list[Any]]:
    """All that a reader can ask about a topic: records with metadata, ends after each append, offsets by time."""
    numbers = range(log.wait(AppendNumber(0), 0) + 1)
    ends = [log.position_at(topic.name, AppendNumber(number)) for number in numbers]
    starts = [log.position_from(topic.name, second * SECOND) for second in range(995, 1100)]
    return topic.read().to_pylist(), ends, starts


# --- rolling up ---


def test_rolling_up_changes_nothing_that_can_be_read(log: EmbeddedLog, clock: Clock) -> None:
    topic = stream(log)
    for number in range(60):
        topic.append([click(number), click(number + 1, "/x" * number)])
        clock.now += SECOND
    before = everything(log, topic)
    assert log.upkeep.roll_up("clicks") > 50
    assert chunk_count(log) == 2
    assert everything(log, topic) == before
    topic.append([click(99)])
    assert topic.read().num_rows == 121
    assert log.upkeep.roll_up("clicks") == 0


def test_what_was_rolled_up_is_rolled_up_again_with_what_came_after(log: EmbeddedLog) -> None:
    topic = stream(log)
    for _ in range(3):
        for number in range(20):
            topic.append([click(number)])
        log.upkeep.roll_up("clicks", least_chunks=2)
    assert chunk_count(log) == 2
    assert len(topic.read()) == 60


def test_a_reader_in_the_middle_of_a_scan_does_not_notice(log: EmbeddedLog) -> None:
    topic = stream(log)
    for number in range(40):
        topic.append(
            pa.table({"user_id": [number] * 3000, "page": ["/a/long/page"] * 3000, "at": [None] * 3000}).set_column(
                2, "at", pa.array([number] * 3000).cast(pa.timestamp("us", "UTC"))
            ),
            partition=0,
        )
    scan = log.scan("clicks", 0, 0, 120_000, columns=["user_id"])
    seen = [next(scan).column(0)[0].as_py() for _ in range(3)]
    log.upkeep.roll_up("clicks")
    seen += [value for batch in scan for value in batch.column(0).to_pylist()[::3000]]
    assert seen == list(range(40))


def test_two_that_roll_up_at_once_do_not_disturb_each_other(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = stream(log)
    for number in range(6):
        topic.append([click(number)], partition=0)
    assert log.upkeep.roll_up("clicks", least_chunks=2) == 6
    topic.append([click(6)], partition=0)
    real, others = rollup._one, iter([lambda: log.upkeep.roll_up("clicks", least_chunks=2)])

    def load_after_another(*given: Any) -> Any:
        for roll_up in others:
            assert roll_up() == 2
        return real(*given)

    monkeypatch.setattr(rollup, "_one", load_after_another)
    assert log.upkeep.roll_up("clicks", least_chunks=2) == 0
    assert sorted(topic.read()["user_id"].to_pylist()) == list(range(7))


def test_a_chunk_that_got_the_number_of_one_that_is_gone_is_not_taken_for_it(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gives numbers again: a swap of two chunks must not take away what was appended under theirs."""
    topic = stream(log)
    for number in range(2):
        topic.append([click(number)], partition=0)

    real, others = rollup.swap, [lambda: log.upkeep.roll_up("clicks", least_chunks=2)]

    def swap_after_others(*given: Any) -> Any:
        if others:
            assert others.pop()() == 2  # it gets the number of the first
            topic.append([click(2)], partition=0)  # and this that of the second
        return real(*given)

    monkeypatch.setattr(rollup, "swap", swap_after_others)
    log.upkeep.roll_up("clicks", least_chunks=2)
    assert topic.read()["user_id"].to_pylist() == [0, 1, 2]


def test_small_appends_leave_no_rows_behind(log: EmbeddedLog) -> None:
    topic = stream(log)
    for number in range(100):
        topic.append([click(number)])
    log.upkeep.roll_up("clicks")
    with log.catalog.read() as catalog:
        assert int(catalog.execute("SELECT count(*) FROM appends").get) == 1
    assert topic.append_parts([click(1)]).number == 101


def test_rolled_up_records_follow_a_schema_that_evolves(log: EmbeddedLog) -> None:
    topic = stream(log)
    for number in range(10):
        topic.append([click(number)])
    topic.alter(schema=CLICKS.append(pa.field("country", pa.string())))
    for number in range(10):
        topic.append([{**click(number), "country": "de"}])
    before = topic.read().to_pylist()
    log.upkeep.roll_up("clicks", least_chunks=2)
    assert topic.read().to_pylist() == before
    assert sorted({row["country"] or "" for row in before}) == ["", "de"]


# --- retention ---


def test_retention_by_age_removes_what_is_too_old_and_says_what_was_missed(log: EmbeddedLog, clock: Clock) -> None:
    topic = stream(log, settings=Settings(retain_s=10))
    first = topic.append([click(1)], partition=0)
    clock.now += 20 * SECOND
    topic.append([click(2)], partition=0)
    assert log.upkeep.retain("clicks") == {0: 1}
    assert topic.read()["user_id"].to_pylist() == [2]
    assert topic.start() == first
    with pytest.raises(Missed, match="partition 0: offsets 0 to 0 are gone, 1 is the first"):
        list(log.scan("clicks", 0, 0, 2))


def test_retention_by_size_keeps_the_newest(log: EmbeddedLog) -> None:
    topic = stream(log)
    sizes = [log.append(topic.parts([click(n)], partition=0)) and n for n in range(10)]
    with log.catalog.read() as catalog:
        one = int(catalog.execute("SELECT max(size) FROM chunks").get)
    topic.alter(settings=Settings(retain_bytes=3 * one))
    log.upkeep.retain("clicks")
    assert topic.read()["user_id"].to_pylist() == sizes[-3:]


def test_a_pin_holds_retention_back(log: EmbeddedLog, clock: Clock) -> None:
    topic = stream(log, settings=Settings(retain_s=1))
    for number in range(4):
        topic.append([click(number)], partition=0)
    log.pin("pipeline", Position.of({"clicks": {0: 2}}), topics=["clicks"])
    clock.now += 100 * SECOND
    assert log.upkeep.retain("clicks") == {0: 2}
    assert topic.read()["user_id"].to_pylist() == [2, 3]
    with pytest.raises(Pinned, match="deletion of topic 'clicks' would take away what 'pipeline' has yet to read"):
        log.delete("clicks")
    log.unpin("pipeline")
    assert log.upkeep.retain("clicks") == {0: 4}
    log.delete("clicks")


def test_a_table_is_not_retained_by_time(log: EmbeddedLog) -> None:
    with pytest.raises(BadSchema, match="is a table with retention"):
        table(log, settings=Settings(retain_s=1))


# --- compaction ---


def user(number: int, name: str, weight: int = 1) -> dict[str, Any]:
    return {"user_id": number, "name": name, "tags": [name, None], "_weight": weight}


def net(topic: Topic) -> dict[str, int]:
    total: dict[str, int] = {}
    for row in topic.read().to_pylist():
        key = repr((row["user_id"], row["name"], row["tags"]))
        total[key] = total.get(key, 0) + row["_weight"]
    return {key: weight for key, weight in total.items() if weight}


def test_a_weighted_table_compacts_to_its_net_sum(log: EmbeddedLog) -> None:
    topic = table(log)
    topic.append([user(1, "a"), user(2, "b"), user(2, "b")])
    topic.append([user(1, "a", -1), user(1, "c")])
    topic.append([user(3, "d")])
    topic.append([user(3, "d", -1)])
    before, end = net(topic), topic.end()
    assert log.upkeep.compact("users") == {0: 7}
    rows = topic.read().to_pylist()
    assert net(topic) == before
    assert [(row["name"], row["_weight"], row["_offset"]) for row in rows] == [("b", 2, 2), ("c", 1, 4)]
    assert topic.end() == end
    topic.append([user(4, "e")])
    assert topic.read().to_pylist()[-1]["_offset"] == 7
    with pytest.raises(Compacted, match="what is before 7 is compacted, cannot start at 3. Begin again at 0"):
        list(log.scan("users", 0, 3, 8))
    assert [batch.num_rows for batch in log.scan("users", 0, 7, 8)] == [1]


def test_an_upsert_table_keeps_the_newest_row_of_a_key_and_tombstones_for_a_while(
    log: EmbeddedLog, clock: Clock
) -> None:
    topic = table(log, upsert=True, settings=Settings(tombstone_s=60))
    topic.upsert([{"user_id": 1, "name": "a"}, {"user_id": 2, "name": "b"}])
    topic.upsert([{"user_id": 1, "name": "c"}])
    topic.delete([{"user_id": 2}])
    log.upkeep.compact("users")

    def rows() -> list[tuple[Any, ...]]:
        return [(row["user_id"], row["name"], row["_deleted"]) for row in topic.read().to_pylist()]

    assert rows() == [(1, "c", False), (2, None, True)]
    clock.now += 100 * SECOND
    topic.upsert([{"user_id": 5, "name": "e"}])
    log.upkeep.compact("users")
    assert rows() == [(1, "c", False), (5, "e", False)]


def test_a_scan_that_compaction_overtakes_is_told_and_a_read_begins_anew(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A net sum in the place of records of which a part was read already would be counted with that part."""
    monkeypatch.setattr(read, "PAGE_CHUNKS", 2)
    users = table(log)
    for _ in range(4):
        users.append([user(1, "de")])
        users.append([user(1, "de", -1)])
    users.append([user(2, "fr")])
    scan = log.scan("users", 0, 0, 9)
    assert next(scan)["_weight"].to_pylist() == [1]
    log.upkeep.compact("users")
    with pytest.raises(Compacted, match="Begin again at 0"):
        list(scan)

    batches, overtaken = log.scan, []

    def overtaking(*given: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        scanned = batches(*given, **options)
        yield next(scanned)
        if not overtaken:
            overtaken.append(log.upkeep.compact("users"))
        yield from scanned

    for _ in range(3):
        users.append([user(3, "us")])
        users.append([user(3, "us", -1)])
    monkeypatch.setattr(log, "scan", overtaking)
    rows = users.read().to_pylist()
    assert overtaken
    assert [(row["user_id"], row["_weight"]) for row in rows] == [(2, 1)]


def test_compaction_stops_at_the_position_of_a_consumer(log: EmbeddedLog) -> None:
    topic = table(log)
    for number in range(6):
        topic.append([user(1, "a", 1 if number % 2 == 0 else -1)])
    log.pin("reader", Position.of({"users": {0: 4}}), topics=["users"])
    assert log.upkeep.compact("users") == {0: 4}
    assert [batch.num_rows for batch in log.scan("users", 0, 4, 6)] == [1, 1]


def test_compacting_twice_is_compacting_once(log: EmbeddedLog) -> None:
    topic = table(log)
    for number in range(50):
        topic.append(
            [user(number % 5, f"n{number}"), *([user(number % 5, f"n{number - 5}", -1)] if number >= 5 else [])]
        )
    before = net(topic)
    log.upkeep.compact("users")
    rows = topic.read().to_pylist()
    assert log.upkeep.compact("users") == {}
    assert topic.read().to_pylist() == rows
    assert net(topic) == before
    assert len(rows) == 5


# --- archive ---


def test_reads_span_the_archive(log: EmbeddedLog, tmp_path: Path, clock: Clock) -> None:
    topic = stream(log)
    for number in range(3):
        topic.append(
            pa.table(
                {
                    "user_id": [number] * 5000,
                    "page": ["/a/long/page"] * 5000,
                    "at": pa.array([number] * 5000).cast(pa.timestamp("us", "UTC")),
                }
            ),
            partition=0,
        )
        clock.now += 10 * SECOND
    before = topic.read()
    cold = tmp_path / "cold"
    assert log.upkeep.archive("clicks", f"file://{cold}", older_than_s=15) == 2
    assert topic.read() == before
    assert log.upkeep.collect_garbage(grace_s=0) == 2
    assert len(list((log.root / "chunks").rglob("*.arrow"))) == 1
    log.forget_mapped()
    assert topic.read() == before
    assert len(list(cold.rglob("*.arrow"))) == 2


# --- forgetting ---

SECRET = "erika.mustermann@example.org"


def test_a_part_that_a_crash_left_in_the_archive_is_not_taken_for_the_chunk(log: EmbeddedLog, tmp_path: Path) -> None:
    topic = stream(log)
    topic.append([click(number, "/a/long/page") for number in range(5000)], partition=0)
    (chunk,) = (log.root / "chunks" / "clicks").iterdir()
    left = tmp_path / "cold" / chunk.relative_to(log.root)
    left.parent.mkdir(parents=True)
    left.write_bytes(chunk.read_bytes()[:1000])
    assert log.upkeep.archive("clicks", f"file://{tmp_path / 'cold'}") == 1
    assert left.read_bytes() == chunk.read_bytes()
    assert topic.read().num_rows == 5000


def bytes_on_disk(*folders: Path) -> bytes:
    return b"".join(file.read_bytes() for folder in folders for file in sorted(folder.rglob("*")) if file.is_file())


def texts_in_files(*folders: Path) -> str:
    import pyarrow.parquet as pq
    from pyarrow import ipc

    read = {".parquet": pq.read_table, ".arrow": lambda file: ipc.open_file(pa.memory_map(str(file))).read_all()}
    files = [file for folder in folders for file in folder.rglob("*") if file.suffix in read]
    return "".join(str(read[file.suffix](file)["page"].to_pylist()) for file in files)


def test_forgetting_leaves_no_byte_anywhere_and_no_offset_moved(log: EmbeddedLog, tmp_path: Path, clock: Clock) -> None:
    topic = stream(log, versioned=True)
    cold = tmp_path / "cold"
    big = pa.table(
        {"user_id": [7] * 3000, "page": [SECRET] * 3000, "at": pa.array([1] * 3000).cast(pa.timestamp("us", "UTC"))}
    )
    topic.append(big)  # a file, to be archived
    log.upkeep.archive("clicks", f"file://{cold}")
    topic.append(big)  # a file
    topic.append([click(1), click(7, SECRET)])  # inlined
    for number in range(20):
        topic.append([click(number), click(7, f"{SECRET}/{number}")])
    log.upkeep.roll_up("clicks")  # some of it rolled up, its old chunks garbage
    topic.append([click(7, SECRET), click(8)])
    log.catalog.truncate_wal()
    assert SECRET.encode() in bytes_on_disk(log.root)
    assert SECRET in texts_in_files(log.root)
    kept = [row for row in topic.read().to_pylist() if row["user_id"] != 7]

    done = log.upkeep.forget("clicks", keys=[{"user_id": 7}])

    assert done.records == 6023
    assert topic.read().to_pylist() == kept, "all others, at their offsets"
    held = bytes_on_disk(log.root, cold)
    assert SECRET.encode() not in held
    assert SECRET not in texts_in_files(log.root, cold), "also not where it is compressed"
    assert log.versions("clicks", [(7,), (8,)]) == [0, 2]
    assert log.upkeep.forget("clicks", keys=[{"user_id": 7}]).records == 0


def test_forgetting_by_a_condition(log: EmbeddedLog) -> None:
    import pyarrow.compute as pc

    topic = stream(log)
    topic.append([click(number, f"/{number % 3}") for number in range(30)])
    log.upkeep.forget("clicks", condition=lambda rows: pc.equal(rows["page"], "/1"))
    assert {row["page"] for row in topic.read().to_pylist()} == {"/0", "/2"}
    assert len(topic.read()) == 20


# --- garbage ---


def test_a_swapped_file_stays_for_the_grace_period(log: EmbeddedLog, clock: Clock) -> None:
    topic = stream(log)
    for _ in range(8):
        topic.append(
            pa.table(
                {
                    "user_id": [1] * 3000,
                    "page": ["/a/long/page"] * 3000,
                    "at": pa.array([1] * 3000).cast(pa.timestamp("us", "UTC")),
                }
            )
        )
    log.upkeep.roll_up("clicks")
    assert len(list((log.root / "chunks").rglob("*.arrow"))) == 8
    assert log.upkeep.collect_garbage(grace_s=60) == 0
    clock.now += 61 * SECOND
    assert log.upkeep.collect_garbage(grace_s=60) == 8
    assert len(topic.read()) == 24_000


def test_a_staged_file_of_a_live_producer_is_never_collected(log: EmbeddedLog, clock: Clock) -> None:
    topic = stream(log)
    batch = to_batch([click(n, "/a/long/page" * 9) for n in range(3000)], topic.spec.stored, topic="clicks")
    producer = log.begin("pipeline")
    part = log.stage("clicks", 0, batch, producer=producer)
    log.stage("clicks", 0, batch)  # of somebody who crashed before the append
    clock.now = 4_000_000_000 * SECOND
    assert log.upkeep.collect_garbage(grace_s=60) == 1
    log.append([part], producer=producer, sequence=0)
    assert len(topic.read()) == 3000
    log.stage("clicks", 0, batch, producer=producer)
    log.begin("pipeline")
    assert log.upkeep.collect_garbage(grace_s=60) == 1


def test_a_round_of_upkeep_does_what_the_settings_ask(log: EmbeddedLog, clock: Clock) -> None:
    clicks, users = stream(log, settings=Settings(retain_s=10)), table(log)
    clicks.append([click(0)], partition=1)
    clock.now += 60 * SECOND
    for number in range(20):
        clicks.append([click(number)], partition=0)
        users.append([user(1, f"n{number}"), *([user(1, f"n{number - 1}", -1)] if number else [])])
    done = log.upkeep.run()
    assert (done.trimmed, done.compacted, done.rolled_up) == ({"clicks": {1: 1}}, {"users": {0: 39}}, 20)


# --- idempotency keys ---


def producers(log: EmbeddedLog) -> set[str]:
    with log.catalog.read() as catalog:
        named = {row[0] for row in catalog.execute("SELECT name FROM producers")}
        assert {row[0] for row in catalog.execute("SELECT producer FROM appends WHERE producer IS NOT NULL")} <= named
        return named


def keyed(topic: Topic, key: str) -> bool:
    """Append with an idempotency key; whether it was known."""
    return topic.append_parts([click(1)], producer=Producer(KEYED + key, Epoch(0)), sequence=0).repeated


def test_a_key_is_known_for_its_time_and_then_forgotten_and_no_other_producer_is(
    log: EmbeddedLog, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "AT_ONCE", 2)
    clicks = stream(log)
    pipeline = log.begin("by_page@6f1c")
    clicks.append_parts([click(0)], producer=pipeline, sequence=0)
    clicks.append_parts([click(0)], producer=Producer("_capture", Epoch(0)), sequence=0)
    clicks.append_parts([click(0)], producer=Producer("_httpd", Epoch(0)), sequence=0)
    assert [keyed(clicks, key) for key in "abcde"] == [False] * 5
    clock.now += 86_399 * SECOND
    assert log.upkeep.run().keys_forgotten == 0
    assert [keyed(clicks, key) for key in "abcde"] == [True] * 5
    assert not keyed(clicks, "young")
    clock.now += 3600 * SECOND
    assert log.upkeep.run().keys_forgotten == 5
    assert producers(log) == {"by_page@6f1c", "_capture", "_httpd", KEYED + "young"}
    assert keyed(clicks, "young")
    assert not keyed(clicks, "a"), "after its time it is another append"
    assert clicks.append_parts([click(0)], producer=pipeline, sequence=0).repeated
    assert clicks.read().num_rows == 10, "no record went with a key"
    assert verify(log.root).sound


def test_each_topic_says_how_long_its_keys_are_known(log: EmbeddedLog, clock: Clock) -> None:
    clicks = stream(log, settings=Settings(keys_s=60))
    others = Topic(log, log.create(TopicSpec("others", CLICKS, partitions=1, settings=Settings(keys_s=600))))
    keyed(clicks, "short")
    keyed(others, "long")
    clicks.append([click(1)])
    clock.now += 61 * SECOND
    assert log.upkeep.forget_keys() == 1
    assert producers(log) == {KEYED + "long"}
    log.alter("others", settings=Settings(keys_s=60))
    assert log.upkeep.forget_keys() == 1
    with pytest.raises(BadSchema, match="keys_s is 0"):
        Settings(keys_s=0)


def test_numbers_go_on_though_the_newest_append_has_an_old_key(tmp_path: Path, clock: Clock) -> None:
    log = EmbeddedLog(tmp_path / "one", clock=clock)
    keyed(stream(log), "only")
    before = log.snapshot(["clicks"]).number
    clock.now += 2 * 86_400 * SECOND
    log.upkeep.run()
    log.close()
    log = EmbeddedLog(tmp_path / "one", clock=clock)
    stream(log).append([click(1)])
    assert log.snapshot(["clicks"]).number == before + 1
    log.close()

"""Compaction and excision of what does not fit into memory, tried at a small scale with smaller limits."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import StorageFailed
from headwater.log import Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog, chunks
from headwater.log.embedded.upkeep import folding, rewriting, spill
from headwater.log.embedded.verify import verify
from headwater.log.position import AppendNumber
from headwater.records import schema_of

KIB = 1024
USERS = schema_of({"user_id": "int64", "name": "string", "tags": "list<string>", "at": "timestamp"})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(tmp_path / "log")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "MOST_BYTES", 32 * KIB)
    monkeypatch.setattr(rewriting, "PIECE_BYTES", 64 * KIB)
    monkeypatch.setattr(rewriting, "SLICE_BYTES", 8 * KIB)
    monkeypatch.setattr(chunks, "GROUP_BYTES", 32 * KIB)
    monkeypatch.setattr(chunks, "INLINE_BYTES", 8 * KIB)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ways records were split into on disk, each time they were."""
    seen: list[int] = []
    made = folding.Spill
    monkeypatch.setattr(folding, "Spill", lambda folder, ways: [seen.append(ways), made(folder, ways)][1])
    return seen


def table(log: EmbeddedLog, **given: Any) -> Topic:
    spec = TopicSpec("users", USERS, key=("user_id",), time="at", kind="table", partitions=1, **given)
    return Topic(log, log.create(spec))


def user(number: int, version: int, **more: Any) -> dict[str, Any]:
    at = datetime(2026, 1, 1, 0, version % 60, number % 60, tzinfo=UTC)
    return {"user_id": number, "name": f"name {version}", "tags": [f"t{version}", None], "at": at, **more}


def put(topic: Topic, rows: list[dict[str, Any]]) -> None:
    plain = {"_weight": 1} if topic.spec.weighted else {"_deleted": False}
    topic.append(pa.Table.from_pylist([{**plain, **row} for row in rows], topic.spec.stored))


def changes(count: int, keys: int) -> Iterator[list[dict[str, Any]]]:
    """Appends of a few hundred updates each: the old row at -1, the new one at +1; now and then a row goes."""
    chance = random.Random(5)
    there: dict[int, int] = {}
    for version in range(count):
        rows = []
        for number in chance.sample(range(keys), min(keys, 300)):
            if number in there:
                rows.append(user(number, there.pop(number), _weight=-1))
            if chance.random() > 0.1:
                there[number] = version
                rows.append(user(number, version, _weight=1))
        yield rows


def summed(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What compaction is to leave, worked out record by record: offset of the last, sum of the weights."""
    left: dict[str, list[Any]] = {}
    for row in rows:
        group = left.setdefault(repr([row[name] for name in USERS.names]), [0, 0, row])
        group[0], group[1] = row["_offset"], group[1] + row["_weight"]
    return sorted((offset, weight, row["user_id"], row["name"]) for offset, weight, row in left.values() if weight)


def found(topic: Topic) -> list[tuple[Any, ...]]:
    rows = topic.read().to_pylist()
    return [(row["_offset"], row["_weight"], row["user_id"], row["name"]) for row in rows]


def chunks_of(log: EmbeddedLog) -> list[tuple[int, ...]]:
    with log.catalog.read() as catalog:
        return catalog.execute('SELECT start, "end", rows, time_before FROM chunks ORDER BY "end"').fetchall()  # type: ignore[return-value]


@pytest.mark.parametrize(("keys", "spilled"), [(40, False), (3000, True)])
def test_a_weighted_table_compacts_to_the_same_net_sum_however_large(
    log: EmbeddedLog, ways: list[int], keys: int, spilled: bool
) -> None:
    topic = table(log)
    for rows in changes(30, keys):
        put(topic, rows)
    before = topic.read().to_pylist()
    numbers = range(1, 31)
    end = topic.end().offset("users", 0)
    ends = [log.position_at("users", AppendNumber(number)) for number in numbers]
    assert log.upkeep.compact("users") == {0: end}
    assert bool(ways) == spilled
    assert found(topic) == summed(before)
    assert [log.position_at("users", AppendNumber(number)) for number in numbers] == ends
    assert (verify(log.root).sound, log.upkeep.compact("users")) == (True, {})
    if spilled:
        assert len(chunks_of(log)) >= 3
    put(topic, [user(1, 99), user(1, 99)])  # what is compacted already is compacted with what came after
    after = topic.read().to_pylist()
    assert log.upkeep.compact("users") == {0: end + 2}
    assert found(topic) == summed(after)
    assert verify(log.root).sound


def test_an_upsert_table_keeps_the_newest_of_each_key_however_large(log: EmbeddedLog, ways: list[int]) -> None:
    topic = table(log, upsert=True, settings=Settings(tombstone_s=0.000001))
    chance = random.Random(3)
    for version in range(20):
        put(topic, [user(number, version) for number in chance.sample(range(3000), 400)])
        topic.delete([{"user_id": number} for number in chance.sample(range(3000), 20)])
    newest = {row["user_id"]: row for row in topic.read().to_pylist()}
    expected = sorted((row["_offset"], row["name"]) for row in newest.values() if not row["_deleted"])
    log.upkeep.compact("users")
    assert ways
    rows = [(row["_offset"], row["name"]) for row in topic.read().to_pylist() if not row["_deleted"]]
    assert rows == expected
    assert verify(log.root).sound


def test_pieces_know_the_greatest_event_time_before_them(log: EmbeddedLog) -> None:
    topic = table(log)
    for rows in changes(30, 3000):
        put(topic, rows)
    before = topic.read().to_pylist()
    log.upkeep.compact("users")
    left = topic.read().to_pylist()
    for start, _, _, time_before in chunks_of(log)[1:]:
        kept = max(row["at"].timestamp() * 1e6 for row in left if row["_offset"] < start)
        ever = max(row["at"].timestamp() * 1e6 for row in before if row["_offset"] < start)
        assert kept <= time_before <= ever


def test_what_one_append_made_too_large_for_a_piece_is_split(log: EmbeddedLog) -> None:
    topic = table(log)
    put(topic, [user(number, 1) for number in range(4000)])
    put(topic, [user(7, 1, _weight=-1)])
    log.upkeep.compact("users")
    assert len(chunks_of(log)) >= 3
    assert [log.position_at("users", AppendNumber(number)) for number in (0, 1, 2)] == [{0: 0}, {0: 4000}, {0: 4001}]
    assert sum(row[2] for row in chunks_of(log)) == 3999
    assert verify(log.root).sound


def test_forgetting_in_a_large_chunk_leaves_pieces_of_it(log: EmbeddedLog) -> None:
    topic = table(log)
    put(topic, [user(number % 1000, number) for number in range(5000)])
    kept = [row for row in topic.read().to_pylist() if row["user_id"] != 7]
    assert log.upkeep.forget("users", keys=[{"user_id": 7}]).records == 5
    assert topic.read().to_pylist() == kept
    assert len(chunks_of(log)) >= 3
    assert any(end - start == rows for start, end, rows, _ in chunks_of(log)), "a piece without a gap has no offsets"
    assert verify(log.root).sound
    log.upkeep.roll_up("users", least_chunks=2)
    assert topic.read().to_pylist() == kept
    assert verify(log.root).sound


@pytest.mark.parametrize("act", ["compact", "forget", "roll_up"])
def test_memory_does_not_grow_with_the_partition(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    """Some megabytes of records, and a fraction of them in Arrow's memory at a time."""
    topic = table(log)
    for first in range(0, 40_000, 8000):
        put(topic, [user(number, 1) for number in range(first, first + 8000)])
    put(topic, [user(1, 1, _weight=-1)])
    size = topic.read().nbytes
    monkeypatch.setattr("headwater.log.embedded.upkeep.rollup.SMALL_BYTES", 1 << 30)
    monkeypatch.setattr(folding, "MOST_BYTES", 128 * KIB)
    monkeypatch.setattr(rewriting, "SLICE_BYTES", 64 * KIB)
    log.forget_mapped()
    watched = pa.proxy_memory_pool(pa.default_memory_pool())
    normal = pa.default_memory_pool()
    pa.set_memory_pool(watched)
    try:
        if act == "compact":
            assert log.upkeep.compact("users")
        elif act == "forget":
            assert log.upkeep.forget("users", keys=[{"user_id": 5}]).records == 1
        else:
            assert log.upkeep.roll_up("users", least_chunks=2) == 6
    finally:
        pa.set_memory_pool(normal)
    assert size > 2_000_000
    assert watched.max_memory() < size / 4


def test_a_disk_too_full_to_set_records_aside_changes_nothing(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = table(log)
    for rows in changes(30, 3000):
        put(topic, rows)
    before = topic.read()

    def full(**_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(spill.tempfile, "TemporaryFile", full)
        with pytest.raises(StorageFailed, match="No space left on device"):
            log.upkeep.compact("users")
    assert topic.read() == before
    assert log.upkeep.compact("users")


@pytest.mark.parametrize("act", ["compact", "forget"])
def test_a_chunk_that_somebody_else_swaps_meanwhile_is_no_error(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    topic = table(log)
    for rows in changes(30, 3000):
        put(topic, rows)
    kept = summed([row for row in topic.read().to_pylist() if row["user_id"] != 5 or act == "compact"])
    other = EmbeddedLog(log.root)
    swapped: list[int] = []
    read = rewriting.slices

    def swap_then_read(*given: Any) -> Iterator[pa.Table]:
        if not swapped:
            swapped.append(0)
            swapped.append(other.upkeep.roll_up("users", least_chunks=2))
        yield from read(*given)

    for name in ("compaction", "excision"):
        monkeypatch.setattr(f"headwater.log.embedded.upkeep.{name}.slices", swap_then_read)
    if act == "compact":
        assert log.upkeep.compact("users") == {}
    else:
        log.upkeep.forget("users", keys=[{"user_id": 5}])
    assert swapped[1] > 1
    assert summed(topic.read().to_pylist()) == kept
    files = {str(path.relative_to(log.root)) for path in (log.root / "chunks").rglob("*") if path.is_file()}
    with log.catalog.read() as catalog:
        known = {row[0] for row in catalog.execute("SELECT file FROM chunks UNION SELECT file FROM garbage")}
    assert files <= known
    other.close()

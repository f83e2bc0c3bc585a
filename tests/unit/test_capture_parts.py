"""Parts of capture that need no database: what a snapshot has shown, what differs, where a key's newest record is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest

import headwater as hw
from headwater.capture.current import live_offsets
from headwater.capture.differences import differences
from headwater.capture.keyindex import KeyIndex, wide
from headwater.capture.position import SourcePosition, lsn_of, lsn_text
from headwater.capture.ranges import Piece, Range
from headwater.capture.reading import AHEAD, read_in_parallel
from headwater.capture.spec import CaptureSpec
from headwater.log import TopicSpec
from headwater.records import schema_of

ITEMS = schema_of({"id": "int64", "name": "string", "tags": "list<string>"})


def spec_of(*, upsert: bool) -> TopicSpec:
    return TopicSpec("items", ITEMS, key=("id",), kind="table", upsert=upsert, partitions=2)


def test_a_position_goes_through_the_log_and_orders_by_where_it_ends() -> None:
    position = SourcePosition(commit=lsn_of("A/1F"), end=lsn_of("A/2F"), changes=7)
    assert SourcePosition.from_log("shop", position.in_log("shop")) == position
    assert lsn_text(position.end) == "A/2F"
    assert SourcePosition() < position


def test_a_snapshot_has_shown_what_is_below_its_xmax_and_was_not_running_also_past_the_wrap() -> None:
    pytest.importorskip("numba")
    from headwater.capture.postgres.overlap import Seen

    seen = Seen.parse("100:110:102,105")
    assert seen.shows(np.array([99, 100, 102, 105, 109, 110, 111])).tolist() == [
        True,
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    wrapped = Seen.parse(f"{2**32 + 2}:{2**32 + 5}:{2**32 + 3}")  # the stream tells the lower 32 bits
    assert wrapped.shows(np.array([2**32 - 1, 2, 3, 4, 5])).tolist() == [True, True, False, True, False]


@pytest.mark.parametrize("upsert", [True, False])
def test_only_rows_that_differ_are_appended_and_then_none_do(log: hw.Log, upsert: bool) -> None:
    spec = log.create(spec_of(upsert=upsert))
    topic = hw.Topic(log, spec)
    told = [{"id": n, "name": f"n{n}" if n % 3 else None, "tags": ["a", None]} for n in range(20)]
    topic.append(told)
    held = [dict(row) for row in told if row["id"] != 4]
    held[7]["tags"] = ["b"]
    held[8]["name"] = "changed"
    held.append({"id": 99, "name": "new", "tags": None})
    as_table = pa.Table.from_pylist(held, ITEMS)
    batches = differences(spec, pa.Table.from_pylist(told, ITEMS), as_table)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(row["id"] for row in rows) == sorted([4, 8, 9, 99] if upsert else [4, 8, 8, 9, 9, 99])
    for batch in batches:
        topic.append(batch)
    assert differences(spec, as_table, as_table) == []


def test_live_rows_are_the_last_records_of_their_keys(log: hw.Log) -> None:
    spec = log.create(spec_of(upsert=True))
    topic = hw.Topic(log, spec)
    topic.upsert([{"id": n, "name": "a"} for n in range(10)])
    topic.delete([{"id": 3}, {"id": 4}])
    topic.upsert([{"id": 4, "name": "again"}, {"id": 5, "name": "b"}])
    ends = topic.end()
    found = sum(len(live_offsets(log, spec, p, ends.offset("items", p))) for p in range(2))
    assert found == 9


def test_the_newest_wide_record_of_a_key_is_found_also_after_many_runs(log: hw.Log) -> None:
    spec = log.create(spec_of(upsert=True))
    topic = hw.Topic(log, spec)
    index = KeyIndex(log, "items", 2)
    keys = pa.RecordBatch.from_pylist([{"id": n, "name": None, "tags": None} for n in (1, 2, 77)], ITEMS)
    for turn in range(12):
        topic.upsert([{"id": n, "name": f"{turn:04d}" * 200} for n in range(5)])
        records, which = index.rows(spec, keys)
        assert which[2] == -1
        for place in (0, 1):
            row = records.slice(int(which[place]), 1).to_pylist()[0]
            assert (row["id"], row["name"][:4]) == (place + 1, f"{turn:04d}")


def test_narrow_rows_are_not_kept_and_wide_ones_are() -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    rows = pa.RecordBatch.from_pylist([{"id": 1, "name": "x"}, {"id": 2, "name": "x" * 600}, {"id": 3}], schema)
    assert wide(rows).tolist() == [False, True, False]


def test_the_password_is_in_no_representation() -> None:
    spec = CaptureSpec("shop", "postgresql://u:canary@h/db", {"t": "t"})
    assert "canary" not in repr(spec)


class Slow:
    """A reader of pieces, and what it has read."""

    def __init__(self) -> None:
        self.read: list[Piece] = []
        self.left = 0

    @contextmanager
    def __call__(self) -> Iterator[Callable[[Piece], Piece]]:
        def read(piece: Piece) -> Piece:
            self.read.append(piece)
            return piece

        yield read
        self.left += 1


PIECES = [Piece("t", Range(number, number + 1), done=number % 5 == 0) for number in range(40)]


@pytest.mark.parametrize("workers", [1, 3])
def test_pieces_are_read_only_so_far_ahead_of_who_takes_them(workers: int, until: Callable[..., None]) -> None:
    slow, stopped = Slow(), threading.Event()
    found = read_in_parallel(PIECES, [slow() for _ in range(workers)], stopped)
    taken = [next(found)]
    until(lambda: len(slow.read) == AHEAD * workers)
    taken.append(next(found))
    until(lambda: len(slow.read) == AHEAD * workers + 1)
    stopped.set()
    taken += found
    assert len(taken) == len(slow.read) <= AHEAD * workers + 1 + workers
    assert slow.left == workers


@pytest.mark.parametrize("workers", [1, 3])
def test_all_pieces_that_are_not_done_are_read_once(workers: int) -> None:
    slow = Slow()
    taken = dict(read_in_parallel(PIECES, [slow() for _ in range(workers)], threading.Event()))
    assert taken == {number: piece for number, piece in enumerate(PIECES) if not piece.done}
    assert (len(slow.read), slow.left) == (len(taken), workers)


@pytest.mark.parametrize("workers", [1, 3])
def test_who_has_enough_leaves_no_worker_waiting(workers: int, until: Callable[..., None]) -> None:
    slow = Slow()
    found = read_in_parallel(PIECES, [slow() for _ in range(workers)], threading.Event())
    next(found)
    until(lambda: len(slow.read) == AHEAD * workers)
    found.close()
    assert slow.left == workers

"""The checkers are tried on the log itself: a bug planted in it must be found by the checkers that it concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import Busy, Fenced
from headwater.log import Position
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.committer import Committer
from headwater.log.embedded.read import Scan
from headwater.log.embedded.transaction import Transaction
from headwater.log.embedded.upkeep import rollup
from headwater.log.protocol import Snapshot
from headwater.testing.history import Client, History, Recorder, check
from tests.crash.cast import TOPICS, prepare, values_of


def played(folder: Path) -> History:
    """Two writers and two readers in turn: repeats, a zombie, a roll-up, a reader that begins late."""
    prepare(folder / "log")
    log = EmbeddedLog(folder / "log")
    files = {name: folder / name for name in ("plain", "once", "zombie", "reader", "late", "drain")}
    plain, once, zombie, reader, late, drain = (
        Client(log, Recorder(file, name), TOPICS) for name, file in files.items()
    )
    old = zombie.begin("once")
    producer = once.begin("once")
    for number in range(12):
        with suppress(Busy):
            plain.append(values_of("plain", number), before=reader.poll)
        for _ in range(2):
            once.append(values_of("once", number), producer=producer, sequence=number)
        reader.poll()
        if number % 5 == 4:
            log.upkeep.roll_up("orders", least_chunks=2)
            late.poll()
    with suppress(Fenced):
        zombie.append(values_of("zombie", 0), producer=old, sequence=99)
    drain.poll(final=True)
    log.close()
    return History.read(*files.values())


def acknowledges_what_it_does_not_list(patch: pytest.MonkeyPatch) -> None:
    real = Transaction.add_chunk

    def planted(self: Transaction, topic: Any, part: Any, number: int, at: int, **given: Any) -> int:
        end = real(self, topic, part, number, at, **given)
        if number % 7 == 3:
            self._chunks.pop()
        return end

    patch.setattr(Transaction, "add_chunk", planted)


def drops_a_record_when_rolling_up(patch: pytest.MonkeyPatch) -> None:
    real = rollup.write_chunk

    def planted(log: Any, topic: Any, place: Any, records: Any) -> Any:
        first, *others = records
        return real(log, topic, replace(place, rows=place.rows - 1), [first.slice(1), *others])

    patch.setattr(rollup, "write_chunk", planted)


def forgets_who_appended(patch: pytest.MonkeyPatch) -> None:
    real = Committer.append

    def planted(self: Committer, wanted: Any, *, now: int) -> Any:
        return real(self, replace(wanted, producer=None, sequence=None), now=now)

    patch.setattr(Committer, "append", planted)


def turns_records_around_when_rolling_up(patch: pytest.MonkeyPatch) -> None:
    real = rollup.write_chunk

    def planted(log: Any, topic: Any, place: Any, records: Any) -> Any:
        together = pa.concat_tables(list(records))
        return real(log, topic, place, [together.take(pa.array(range(together.num_rows - 1, -1, -1)))])

    patch.setattr(rollup, "write_chunk", planted)


def refuses_what_it_has_done(patch: pytest.MonkeyPatch) -> None:
    real = Committer.append

    def planted(self: Committer, wanted: Any, *, now: int) -> Any:
        done = real(self, wanted, now=now)
        if wanted.producer is None and done.number % 3 == 0:
            raise Busy(path="planted", waited_s=0)
        return done

    patch.setattr(Committer, "append", planted)


def lists_what_is_only_staged(patch: pytest.MonkeyPatch) -> None:
    real = EmbeddedLog.stage

    def planted(self: EmbeddedLog, *given: Any, **named: Any) -> Any:
        part = real(self, *given, **named)
        self.append([part])
        return part

    patch.setattr(EmbeddedLog, "stage", planted)


def shows_topics_at_different_boundaries(patch: pytest.MonkeyPatch) -> None:
    real = EmbeddedLog.snapshot
    earlier: dict[str, Position] = {"seen": Position()}

    def planted(self: EmbeddedLog, topics: Any, **given: Any) -> Snapshot:
        found = real(self, topics, **given)
        ends, old = found.position.as_dict(), earlier["seen"].as_dict()
        earlier["seen"] = found.position
        return Snapshot(found.number, Position.of({**ends, "payments": old.get("payments", {})}))

    patch.setattr(EmbeddedLog, "snapshot", planted)


def leaves_out_the_first_of_many(patch: pytest.MonkeyPatch) -> None:
    real = Scan.batches

    def planted(self: Scan, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(self, *given, **named):
            yield batch.slice(1) if batch.num_rows > 2 else batch

    patch.setattr(Scan, "batches", planted)


def leaves_holes(patch: pytest.MonkeyPatch) -> None:
    real = Transaction.add_chunk

    def planted(self: Transaction, topic: Any, part: Any, number: int, at: int, **given: Any) -> int:
        end = real(self, topic, part, number, at, **given)
        place = (topic.id, part.partition)
        self._known.ends[place] = (end + 1, self._known.ends[place][1])
        return end

    patch.setattr(Transaction, "add_chunk", planted)


def test_without_a_plant_nothing_is_found(tmp_path: Path) -> None:
    assert check(played(tmp_path)) == []


@pytest.mark.parametrize(
    ("plant", "concerned"),
    [
        (acknowledges_what_it_does_not_list, {"L1", "L2", "L10"}),
        (drops_a_record_when_rolling_up, {"L2", "L10"}),
        (forgets_who_appended, {"L3", "L12"}),
        (turns_records_around_when_rolling_up, {"L3", "L4"}),
        (refuses_what_it_has_done, {"L5"}),
        (lists_what_is_only_staged, {"L3", "L6"}),
        (shows_topics_at_different_boundaries, {"L7", "L10"}),
        (leaves_out_the_first_of_many, {"L8", "L10"}),
        (leaves_holes, {"L10"}),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], concerned: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert {finding.invariant for finding in check(played(tmp_path))} >= concerned

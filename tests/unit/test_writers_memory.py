"""What the writer of a log remembers from one commit to the next: never more than is so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import TopicNotFound, VersionConflict
from headwater.log import Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.transaction import Transaction
from headwater.log.spec import Settings
from headwater.records import schema_of

SPEC = TopicSpec("seats", schema_of({"seat": "string", "by": "int64"}), key=("seat",), partitions=1, versioned=True)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[tuple[EmbeddedLog, EmbeddedLog]]:
    """Two that write to one place, as two processes do."""
    one, other = EmbeddedLog(tmp_path / "log"), EmbeddedLog(tmp_path / "log")
    one.create(SPEC)
    yield one, other
    one.close()
    other.close()


def take(log: EmbeddedLog, by: int, *, expect: int) -> Any:
    return Topic(log, SPEC).append([{"seat": "1A", "by": by}], expect={("1A",): expect})


def test_two_writers_see_each_others_versions_and_ends(logs: tuple[EmbeddedLog, EmbeddedLog]) -> None:
    one, other = logs
    for number in range(0, 6, 2):
        take(one, 1, expect=number)
        with pytest.raises(VersionConflict):
            take(other, 2, expect=number)
        take(other, 2, expect=number + 1)
    read = Topic(one, SPEC).read()
    assert read["_offset"].to_pylist() == list(range(6))
    assert read["by"].to_pylist() == [1, 2] * 3


def test_a_refused_append_counts_nothing(logs: tuple[EmbeddedLog, EmbeddedLog]) -> None:
    one, _ = logs
    for _ in range(2):
        with pytest.raises(VersionConflict):
            take(one, 1, expect=7)
    take(one, 1, expect=0)
    assert one.versions("seats", [("1A",)]) == [1]


def test_another_writers_bound_holds_for_the_next_append(logs: tuple[EmbeddedLog, EmbeddedLog]) -> None:
    one, other = logs
    take(one, 1, expect=0)
    other.alter("seats", settings=Settings(most_rows=1, when_full="drop_newest"))
    take(one, 1, expect=1)
    assert one.extents("seats")[0].dropped == 1


def test_a_topic_that_another_writer_made_anew_is_not_the_one_remembered(
    logs: tuple[EmbeddedLog, EmbeddedLog],
) -> None:
    one, other = logs
    take(one, 1, expect=0)
    other.delete("seats")
    other.create(SPEC)
    with pytest.raises(TopicNotFound):
        take(one, 1, expect=0)
    take(one, 2, expect=0)
    assert Topic(other, SPEC).read()["by"].to_pylist() == [2]


def test_what_was_rolled_back_is_forgotten(
    logs: tuple[EmbeddedLog, EmbeddedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = logs
    take(one, 1, expect=0)

    def broken(_: Transaction) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "flush", broken)
        with pytest.raises(ZeroDivisionError):
            take(one, 2, expect=1)
    take(one, 3, expect=1)
    read = Topic(one, SPEC).read()
    assert list(zip(read["_offset"].to_pylist(), read["by"].to_pylist(), strict=True)) == [(0, 1), (1, 3)]

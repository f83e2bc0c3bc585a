"""Each checker on the smallest history that is good and the smallest that is bad; what is unknown is allowed both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Fenced, StorageFailed
from headwater.testing.history import CHECKERS, Event, History, Range, Record, Recorder, check


class Script:
    """A history written by hand: every line a moment later. Values are one letter each, `a` in topic t, partition 0."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def _add(self, process: str, op: Any, kind: Any, **fields: Any) -> Script:
        self.events.append(Event(process, op, kind, len(self.events), **fields))
        return self

    def ask(self, process: str, values: str, **fields: Any) -> Script:
        return self._add(process, "append", "invoke", records=records(values), **fields)

    def tell(self, process: str, kind: str, values: str, at: int | None = None, **fields: Any) -> Script:
        return self._add(process, "append", kind, records=records(values, at), **fields)

    def appends(self, process: str, values: str, at: int, **fields: Any) -> Script:
        return self.ask(process, values, **fields).tell(process, "ok", values, at, **fields)

    def polls(self, process: str, values: str, start: int, **fields: Any) -> Script:
        """The values from `start` on; what is missing is written as a dot."""
        found = tuple(record for record in records(values, start) if record.value != ".")
        return self.sees(process, *found, ranges=(Range("t", 0, start, start + len(values)),), **fields)

    def sees(self, process: str, *seen: Record, ranges: tuple[Range, ...], **fields: Any) -> Script:
        self._add(process, "poll", "invoke", **fields)
        return self._add(process, "poll", "ok", records=seen, ranges=ranges, **fields)

    def begins(self, process: str, producer: str, epoch: int) -> Script:
        self._add(process, "begin", "invoke", producer=producer)
        return self._add(process, "begin", "ok", producer=producer, epoch=epoch)

    @property
    def history(self) -> History:
        return History(self.events)


def records(values: str, at: int | None = None) -> tuple[Record, ...]:
    return tuple(Record("t", 0, value, None if at is None else at + place) for place, value in enumerate(values))


def both(script: Script, process: str, value: str, in_t: int, in_u: int) -> Script:
    """An append of one value to t and, as its capital, to u."""
    asked = (Record("t", 0, value), Record("u", 0, value.upper()))
    told = (Record("t", 0, value, in_t), Record("u", 0, value.upper(), in_u))
    return script._add(process, "append", "invoke", records=asked)._add(process, "append", "ok", records=told)


def torn(*seen: Record) -> Script:
    return both(Script(), "w", "a", 0, 0).sees("r", *seen, ranges=(Range("t", 0, 0, 1), Range("u", 0, 0, 1)))


def crossed(second_in_u: int) -> Script:
    """Two writers; in t the first comes first, in u as given."""
    return both(both(Script(), "w", "a", 0, 1 - second_in_u), "v", "b", 1, second_in_u)


GOOD_AND_BAD: dict[str, list[tuple[str, Script, Script]]] = {
    "L1": [
        (
            "lost write",
            Script().appends("w", "a", 0).appends("w", "b", 1).polls("r", "ab", 0),
            Script().appends("w", "a", 0).appends("w", "b", 1).polls("r", ".b", 0),
        ),
    ],
    "L2": [
        (
            "unseen",
            Script().appends("w", "a", 0).polls("r", "a", 0, final=True),
            Script().appends("w", "a", 0).polls("r", "a", 0).polls("d", "", 0, final=True),
        ),
        ("unseen", Script().polls("d", "", 0, final=True), Script().appends("w", "a", 0).polls("r", "a", 0)),
    ],
    "L3": [
        (
            "duplicate",
            Script().appends("w", "a", 0).appends("v", "a", 0, repeated=True).polls("r", "a", 0),
            Script().appends("w", "a", 0).appends("v", "a", 1).polls("r", "aa", 0),
        ),
    ],
    "L4": [
        (
            "inconsistent offset",
            Script().polls("r", "ab", 0).polls("s", "ab", 0),
            Script().polls("r", "ab", 0).polls("s", "ba", 0),
        ),
        (
            "inconsistent offset",
            Script().appends("w", "a", 0).polls("r", "a", 0),
            Script().appends("w", "a", 0).polls("r", "b", 0),
        ),
    ],
    "L5": [
        (
            "aborted read",
            Script().ask("w", "a").tell("w", "fail", "a").polls("r", "", 0),
            Script().ask("w", "a").tell("w", "fail", "a").polls("r", "a", 0),
        ),
        (
            "aborted read",
            Script().ask("w", "a").tell("w", "info", "a").ask("v", "a").tell("v", "fail", "a").polls("r", "a", 0),
            Script().ask("w", "a").tell("w", "fail", "a").ask("v", "a").tell("v", "fail", "a").polls("r", "a", 0),
        ),
    ],
    "L6": [
        (
            "precommitted read",
            Script().ask("w", "a").polls("r", "a", 0).tell("w", "ok", "a", 0),
            Script().polls("w", "a", 0).appends("w", "a", 0),
        ),
        ("precommitted read", Script().ask("w", "a").polls("r", "a", 0), Script().polls("r", "a", 0)),
    ],
    "L7": [
        (
            "torn append",
            torn(Record("t", 0, "a", 0), Record("u", 0, "A", 0)),
            torn(Record("t", 0, "a", 0)),
        ),
    ],
    "L8": [
        (
            "poll skip",
            Script().appends("w", "abc", 0).polls("r", "a", 0).polls("r", "bc", 1),
            Script().appends("w", "abc", 0).polls("r", "a", 0).polls("r", "c", 2),
        ),
        (
            "nonmonotonic poll",
            Script().polls("r", "ab", 0).polls("s", "ab", 0),
            Script().polls("r", "ab", 0).polls("r", "b", 1),
        ),
        (
            "internal poll skip",
            Script().appends("w", "ab", 0).appends("w", "d", 3).polls("r", "ab.d", 0),
            Script().appends("w", "abcd", 0).polls("r", "ab.d", 0),
        ),
        (
            "internal nonmonotonic poll",
            Script().sees("r", *records("a", 0), *records("b", 1), ranges=(Range("t", 0, 0, 2),)),
            Script().sees("r", *records("ab", 0), *records("b", 1), ranges=(Range("t", 0, 0, 2),)),
        ),
    ],
    "L9": [
        (
            "nonmonotonic send",
            Script().appends("w", "a", 0).appends("w", "b", 1).appends("w", "a", 0, repeated=True),
            Script().appends("w", "a", 1).appends("w", "b", 0),
        ),
        (
            "internal nonmonotonic send",
            Script().appends("w", "ab", 0),
            Script().ask("w", "ab")._add("w", "append", "ok", records=(*records("a", 1), *records("b", 0))),
        ),
        ("write cycle", crossed(second_in_u=1), crossed(second_in_u=0)),
    ],
    "L10": [
        ("hole", Script().polls("r", "ab", 0), Script().polls("r", "a.", 0)),
        (
            "end goes back",
            Script().ask("w", "a").polls("r", "", 0).tell("w", "ok", "a", 0).polls("s", "a", 0),
            Script().appends("w", "a", 0).polls("r", "", 0),
        ),
        (
            "offset goes back",
            Script().ask("w", "a").appends("v", "b", 1).tell("w", "ok", "a", 0),
            Script().appends("v", "b", 1).appends("w", "a", 0),
        ),
    ],
    "L12": [
        (
            "fencing",
            Script()
            .begins("w", "p", 1)
            .ask("w", "a", producer="p", epoch=1, sequence=0)
            .begins("v", "p", 2)
            .tell("w", "ok", "a", 0, producer="p", epoch=1, sequence=0),
            Script().begins("w", "p", 1).begins("v", "p", 2).appends("w", "a", 0, producer="p", epoch=1, sequence=0),
        ),
        (
            "epoch twice",
            Script().begins("w", "p", 1).begins("v", "p", 2),
            Script().begins("w", "p", 1).begins("v", "p", 1),
        ),
    ],
}
CASES = [(invariant, *case) for invariant, cases in GOOD_AND_BAD.items() for case in cases]


def test_every_checker_is_tried() -> None:
    assert GOOD_AND_BAD.keys() == CHECKERS.keys()


@pytest.mark.parametrize(("invariant", "name", "right", "wrong"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_a_checker_passes_the_good_and_finds_the_bad(invariant: str, name: str, right: Script, wrong: Script) -> None:
    assert CHECKERS[invariant](right.history) == []
    found = CHECKERS[invariant](wrong.history)
    assert {(finding.invariant, finding.name) for finding in found} == {(invariant, name)}


def test_a_finding_says_what_and_where() -> None:
    (finding,) = CHECKERS["L1"](Script().appends("w", "ab", 0).polls("r", ".b", 0).history)
    assert str(finding) == "L1 lost write: topic t, partition 0, offset 0: 'a' was acknowledged to w, and nobody saw it"


def test_an_append_of_unknown_outcome_may_be_there_or_not() -> None:
    for seen in ("", "a"):
        assert check(Script().ask("w", "a").polls("d", seen, 0, final=True).history) == []


def test_a_process_does_one_thing_at_a_time() -> None:
    with pytest.raises(ValueError, match="process w asks at 1 while it waits"):
        History(Script().ask("w", "a").ask("w", "b").events)


def test_a_recorded_history_is_read_back_without_the_line_that_was_cut_short(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "w", "w")
    with recorder.operation("append", records=records("a"), producer="p", epoch=1, sequence=7) as answer:
        answer(records=records("a", 3))
    with pytest.raises(Fenced), recorder.operation("append", records=records("b")):
        raise Fenced(producer="p", epoch=1, current=2)
    with pytest.raises(StorageFailed), recorder.operation("append", records=records("c")):
        raise StorageFailed(act="writing", file="f", why="no")
    with recorder.operation("append", records=records("d")) as answer:
        answer(records=records("d", 4))
    recorder.close()
    (tmp_path / "w").write_bytes((tmp_path / "w").read_bytes()[:-3])
    history = History.read(tmp_path / "w")
    assert [operation.outcome for operation in history.operations] == ["ok", "fail", "info", "info"]
    assert [record.offset for record in history.operations[0].records] == [3]
    assert history.operations[0].asked.sequence == 7

"""What a view on a view covers: as far as the last append of the one below that it has read, empty ones included."""

from __future__ import annotations

import pytest

import headwater as hw
from headwater.log import Position
from headwater.log.coverage import all_inputs, covered_by
from tests.unit.handmade import HandMade, Versions, both, clicks


@pytest.fixture
def below(log: hw.Log) -> HandMade:
    return HandMade(log, "below")


def test_it_covers_what_the_view_below_covered_where_it_stands(log: hw.Log, below: HandMade) -> None:
    above = HandMade(log, "above", inputs=("below",))
    made_by = Versions(below, above).made_by
    first = below.batch(clicks(3), a=1)
    assert covered_by(log, made_by, above.made) == Position()
    above.batch(first, a=1)
    assert covered_by(log, made_by, above.made) == both(first, clicks(3))
    second = below.batch(clicks(5), a=2)
    assert covered_by(log, made_by, above.made) == both(first, clicks(3)), "the second is not read yet"
    below.batch(clicks(9))
    above.batch(second, a=2)
    assert covered_by(log, made_by, above.made) == both(second, clicks(9)), "nothing came of 5 to 9"


def test_an_empty_append_below_counts_at_once(log: hw.Log, below: HandMade) -> None:
    above = HandMade(log, "above", inputs=("below",))
    made_by = Versions(below, above).made_by
    first = below.batch(clicks(3), a=1)
    above.batch(first, a=1)
    below.batch(clicks(8))
    assert covered_by(log, made_by, above.made) == both(first, clicks(8))


def test_it_is_the_same_after_rolling_up_and_compaction(log: hw.Log, below: HandMade) -> None:
    above = HandMade(log, "above", inputs=("below",))
    made_by = Versions(below, above).made_by
    ends = [below.batch(clicks(at), a=at, b=at) for at in range(1, 9)]
    above.batch(ends[3], a=4)
    asked = covered_by(log, made_by, above.made)
    assert asked == both(ends[3], clicks(4))
    log.upkeep.roll_up("below", least_chunks=2)  # type: ignore[attr-defined]
    assert covered_by(log, made_by, above.made) == asked
    log.upkeep.compact("below")  # type: ignore[attr-defined]
    assert covered_by(log, made_by, above.made) == asked


def test_of_several_ways_to_a_topic_the_shortest_reach_counts(log: hw.Log, below: HandMade) -> None:
    top = HandMade(log, "top", inputs=("clicks", "below"))
    made_by = Versions(below, top).made_by
    top.batch(clicks(9))
    assert covered_by(log, made_by, top.made) == Position(), "below has read nothing of it"
    first = below.batch(clicks(3), a=1)
    top.batch(both(clicks(9), first))
    assert covered_by(log, made_by, top.made) == both(clicks(3), first)


def test_all_that_a_view_depends_on_nearest_first(log: hw.Log, below: HandMade) -> None:
    above = HandMade(log, "above", inputs=("below", "users"))
    made_by = Versions(below, above).made_by
    assert all_inputs(made_by, above.made.inputs) == ("below", "users", "clicks")


def test_the_append_after_a_position(log: hw.Log, below: HandMade) -> None:
    assert log.append_after("below", Position()) is None
    ends = [below.batch(clicks(at), a=at, b=at, c=at) for at in range(1, 6)]
    assert [log.append_after("below", end) for end in [Position(), *ends]] == [1, 2, 3, 4, 5, None]
    log.upkeep.roll_up("below", least_chunks=2)  # type: ignore[attr-defined]
    assert [log.append_after("below", end) for end in [Position(), *ends]] == [1, 2, 3, 4, 5, None]

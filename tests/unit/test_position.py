from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Position
from headwater.errors import BadPosition

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,10}", fullmatch=True)
positions = st.dictionaries(names, st.dictionaries(st.integers(0, 50), st.integers(0, 2**62))).map(Position.of)


@given(positions)
def test_text_and_back(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(positions, positions)
def test_covers_is_the_order_of_vectors(a: Position, b: Position) -> None:
    def cells(position: Position) -> dict[tuple[str, int], int]:
        return {(topic, partition): offset for topic, by in position.ends for partition, offset in by}

    mine, theirs = cells(a), cells(b)
    assert a.covers(b) == all(mine.get(cell, 0) >= offset for cell, offset in theirs.items())


def test_a_position_at_zero_is_the_start() -> None:
    assert Position.of({"clicks": {0: 0}}) == Position()


@pytest.mark.parametrize(
    "text", ["clicks", "clicks:", "clicks:0", "clicks:0=x", ":0=1", "a:0=1;a:1=1", "a:-1=3", "a:0=-3"]
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(BadPosition):
        Position.parse(text)

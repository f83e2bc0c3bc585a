"""The parser of StatsD lines against a plain model: metrics are made, written by the grammar, and read again."""

from __future__ import annotations

import math
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.feeds.metrics import KINDS, BadMetric, metrics_in

NOW = 1_700_000_000_000_000
NAMES = st.text(string.ascii_letters + string.digits + "._- /é", min_size=1, max_size=20)
WORDS = st.text(string.ascii_letters + string.digits + "._-/=é", min_size=1, max_size=8)
NUMBERS = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1.", ".5", "+3", "-0", "1e3", "+1E-2"]),
)
TAGS = st.lists(st.tuples(WORDS, st.one_of(st.none(), WORDS)), max_size=4)


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    """A line, and what it says."""
    short = draw(st.sampled_from(sorted(KINDS)))
    name = draw(NAMES)
    values = [draw(WORDS)] if short == "s" else draw(st.lists(NUMBERS, min_size=1, max_size=3))
    rate = draw(st.one_of(st.none(), st.floats(0.001, 1).map(lambda each: f"{each:.4f}")))
    tags = draw(st.one_of(st.none(), TAGS))
    moment = draw(st.one_of(st.none(), st.integers(1, 4_000_000_000)))
    fields = [f"@{rate}"] if rate is not None else []
    if tags is not None:
        fields.append("#" + ",".join(tag if value is None else f"{tag}:{value}" for tag, value in tags))
    fields += [f"T{moment}"] if moment is not None else []
    fields += draw(st.sampled_from([[], ["c:ci-1234"], ["c:ci-1234", "e:it-false"]]))
    line = f"{name}:{':'.join(values)}|{short}" + "".join(f"|{field}" for field in draw(st.permutations(fields)))

    by_name: dict[str, list[str]] = {}
    for tag, tag_value in tags or []:
        by_name.setdefault(tag, []).append(tag_value or "")
    told = {
        "name": name,
        "rate": float(rate) if rate is not None else 1.0,
        "tags": {tag: ",".join(found) for tag, found in by_name.items()},
        "at_us": moment * 1_000_000 if moment is not None else NOW,
    }
    if short == "s":
        return line, [{**told, "kind": "set", "value": None, "member": values[0]}]
    kinds = ["gauge_delta" if short == "g" and value[0] in "+-" else KINDS[short] for value in values]
    return line, [
        {**told, "kind": kind, "value": float(value), "member": None} for kind, value in zip(kinds, values, strict=True)
    ]


@given(lines())
def test_a_line_says_what_was_written_into_it(made: tuple[str, list[dict[str, Any]]]) -> None:
    line, told = made
    found = [{**metric._asdict(), "tags": dict(metric.tags)} for metric in metrics_in(line, now_us=NOW)]
    assert found == told


@given(st.text(max_size=60))
def test_any_text_is_metrics_or_a_bad_line_and_nothing_else(text: str) -> None:
    try:
        found = metrics_in(text, now_us=NOW)
    except BadMetric:
        return
    assert found
    for metric in found:
        assert metric.name
        assert 0 < metric.rate <= 1
        assert (metric.value is None) == (metric.kind == "set")
        assert metric.value is None or math.isfinite(metric.value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "a metric is NAME:VALUE|KIND"),
        ("hits", "a metric is NAME:VALUE|KIND"),
        (":1|c", "a metric is NAME:VALUE|KIND"),
        ("hits:1", "the kind is none of c, g, ms, h, d, s"),
        ("hits:1|x", "the kind is none of"),
        ("hits:|c", "the value '' is not a number"),
        ("hits:nan|c", "the value 'nan' is not a number"),
        ("hits:1e999|c", "the value '1e999' is not a number"),
        ("hits:1_000|c", "the value '1_000' is not a number"),
        ("hits:١|c", "the value '١' is not a number"),
        ("hits:1|c|@0", "the rate '0' is not above 0 and up to 1"),
        ("hits:1|c|@2", "the rate '2' is not above 0"),
        ("hits:1|c|@x", "the rate 'x' is not above 0"),
        ("hits:1|c|Tx", "the time 'x' is not in seconds"),
        ("hits:1|c|T99999999999999", "is not in seconds since 1970"),
        ("hits:1|c|?", "the field '?' is not known"),
        ("_e{5,4}:title|text", "the kind is none of"),
    ],
)
def test_a_bad_line_says_why(line: str, why: str) -> None:
    with pytest.raises(BadMetric) as error:
        metrics_in(line, now_us=NOW)
    assert why in str(error.value)

"""What every store keeps to. Subclass, give it a `place`, and all of it runs; what a store cannot do says why.

class TestMine(StoreContract):
    @pytest.fixture
    def place(self, tmp_path): return Place(lambda served: MyStore(tmp_path, served))
"""

from __future__ import annotations

import datetime
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest

from headwater.errors import BadKey, BadStore, StoreMoved, StoreTaken
from headwater.log.position import AppendNumber, Position
from headwater.records import WEIGHT
from headwater.serve.store import NOTHING, Mark, Served, Store, Target

FEW = pa.schema([("page", pa.string()), ("n", pa.int64())])
ALL = pa.schema(
    [
        ("page", pa.string()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("ok", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.uint16()),
        ("middle", pa.uint32()),
        ("big", pa.uint64()),
        ("x", pa.float64()),
        ("half", pa.float32()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(38, 2)),
        ("tags", pa.list_(pa.string())),
        ("who", pa.struct([("name", pa.string()), ("since", pa.timestamp("us", "UTC")), ("n", pa.uint64())])),
        ("counts", pa.map_(pa.date32(), pa.binary())),
    ]
)
SERVED = Served("by_page", "by_page@1", FEW, ("page",), Path())


@dataclass
class Place:
    """Where a store under test is: opened as often as one likes. `rows` reads what is there, if the store does not."""

    open: Callable[[Served], Target]
    rows: Callable[[Target, Served], list[dict[str, Any]]] | None = None

    def rows_of(self, target: Target, served: Served) -> list[dict[str, Any]]:
        if self.rows is not None:
            return self.rows(target, served)
        found: list[dict[str, Any]] = cast(Store, target).read()[0].to_pylist()
        return found


def mark(number: int) -> Mark:
    return Mark(AppendNumber(number), Position.of({"v": {0: number}}), Position.of({"clicks": {0: 10 * number}}))


def row(page: str | None, n: int, weight: int = 1) -> dict[str, Any]:
    return {"page": page, "n": n, WEIGHT: weight}


def full(page: str | None, n: int, weight: int = 1) -> dict[str, Any]:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=datetime.UTC)
    return {
        "page": page,
        "n": n,
        "at": at,
        "day": at.date(),
        "ok": n > 1,
        "tiny": -n,
        "small": 2**16 - n,
        "middle": 2**32 - n,
        "big": 2**64 - n,
        "x": n / 3,
        "half": n / 4,
        "raw": bytes([n, 0, 255]),
        "price": Decimal("12345678901234567890.12") * n,
        "tags": ["a", None, 'ü, "quoted"\n\\'],
        "who": {"name": "x", "since": at, "n": 2**64 - n},
        "counts": [(at.date(), b"\x00\xff")],
        WEIGHT: weight,
    }


def changes(*rows: dict[str, Any], schema: pa.Schema = FEW) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema.append(pa.field(WEIGHT, pa.int64())))


def plainly(*rows: dict[str, Any]) -> list[str]:
    """Rows in an order of their own, without weights."""
    return sorted(repr({name: _alike(value) for name, value in each.items() if name != WEIGHT}) for each in rows)


def _alike(value: Any) -> Any:
    """Equal values that print alike: UTC has several names in Python."""
    if isinstance(value, dict):
        return {name: _alike(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_alike(each) for each in value]
    return value.timestamp() if isinstance(value, datetime.datetime) else value


class Interrupted(BaseException):
    pass


@contextmanager
def interrupted_at(line: int) -> Iterator[None]:
    """Raise at the Nth line of stores' code that runs."""
    left = line

    def at_line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise Interrupted
        return at_line

    def at_call(frame: FrameType, event: str, _: object) -> Any:
        return at_line if "/serve/stores/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        yield
    finally:
        sys.settrace(before)


class TargetContract:
    """For everything that takes changes."""

    lines_apart: ClassVar[int] = 5
    """An apply is interrupted at every so many lines of it."""
    no_bags: ClassVar[str] = ""
    """Why rows without a key are refused, if they are."""
    apart: ClassVar[str] = ""
    """Why versions do not meet, if they do not: each has a place of its own."""

    @pytest.fixture
    def opened(self, place: Place) -> Iterator[Callable[[Served], Target]]:
        """Opens stores that are closed in the end."""
        made: list[Target] = []

        def opening(served: Served = SERVED) -> Target:
            made.append(place.open(served))
            return made[-1]

        yield opening
        for each in made:
            each.close()

    def test_a_new_store_has_no_rows_and_covers_nothing(self, place: Place, opened: Callable[..., Target]) -> None:
        store = opened()
        assert store.mark() == NOTHING
        assert place.rows_of(store, SERVED) == []

    def test_rows_of_every_type_come_back_as_they_went_in(self, place: Place, opened: Callable[..., Target]) -> None:
        served = replace(SERVED, schema=ALL)
        store = opened(served)
        nulls = dict.fromkeys(ALL.names) | {"page": "nothing", WEIGHT: 1}
        given = [full("/a", 1), full("", 2), full(None, 3), nulls]
        store.apply(changes(*given, schema=ALL), mark(1))
        assert plainly(*place.rows_of(store, served)) == plainly(*given)
        store.apply(changes(full("/a", 1, -1), full("/a", 4), {**nulls, WEIGHT: -1}, schema=ALL), mark(2))
        assert plainly(*place.rows_of(store, served)) == plainly(full("/a", 4), full("", 2), full(None, 3))

    def test_names_that_are_words_of_sql_or_need_quotes(self, place: Place, opened: Callable[..., Target]) -> None:
        schema = pa.schema([("select", pa.string()), ('a "b" c', pa.int64()), ("Käse", pa.string())])
        served = replace(SERVED, schema=schema, key=("select",))
        store = opened(served)
        one = {"select": "x'; DROP TABLE rows; --", 'a "b" c': 1, "Käse": "%s {} ?", WEIGHT: 1}
        store.apply(changes(one, schema=schema), mark(1))
        assert plainly(*place.rows_of(store, served)) == plainly(one)

    def test_an_update_takes_the_old_row_away(self, place: Place, opened: Callable[..., Target]) -> None:
        store = opened()
        store.apply(changes(row("/a", 1), row(None, 5)), mark(1))
        store.apply(changes(row("/a", 1, -1), row("/a", 2), row(None, 5, -1), row(None, 6)), mark(2))
        assert plainly(*place.rows_of(store, SERVED)) == plainly(row("/a", 2), row(None, 6))

    def test_a_deleted_row_is_gone_and_may_come_back(self, place: Place, opened: Callable[..., Target]) -> None:
        store = opened()
        store.apply(changes(row("/a", 1), row("/b", 2), row(None, 3)), mark(1))
        store.apply(changes(row("/a", 1, -1), row(None, 3, -1)), mark(2))
        assert plainly(*place.rows_of(store, SERVED)) == plainly(row("/b", 2))
        store.apply(changes(row("/a", 9)), mark(3))
        assert plainly(*place.rows_of(store, SERVED)) == plainly(row("/a", 9), row("/b", 2))

    def test_what_came_and_went_in_between_leaves_no_trace(self, place: Place, opened: Callable[..., Target]) -> None:
        store = opened()
        store.apply(changes(row("/a", 1), row("/a", 1, -1), row("/a", 2), row("/a", 2, -1), row("/a", 3)), mark(1))
        assert plainly(*place.rows_of(store, SERVED)) == plainly(row("/a", 3))

    def test_an_empty_append_moves_the_mark(self, place: Place, opened: Callable[..., Target]) -> None:
        store = opened()
        store.apply(changes(), mark(4))
        assert store.mark() == mark(4)
        store.apply(changes(), mark(5), after=mark(4))
        assert store.mark() == mark(5)

    def test_opened_again_it_goes_on_where_it_was(self, place: Place, opened: Callable[..., Target]) -> None:
        first = opened()
        first.apply(changes(row("/a", 1)), mark(1))
        first.close()
        again = opened()
        assert again.mark() == mark(1)
        again.apply(changes(row("/a", 1, -1), row("/a", 2)), mark(2), after=mark(1))
        assert plainly(*place.rows_of(again, SERVED)) == plainly(row("/a", 2))

    def test_changes_that_follow_another_mark_are_refused(self, place: Place, opened: Callable[..., Target]) -> None:
        store = opened()
        store.apply(changes(row("/a", 1)), mark(2), after=NOTHING)
        with pytest.raises(StoreMoved, match="holds append 2, not 0"):
            store.apply(changes(row("/b", 1)), mark(1), after=NOTHING)
        assert plainly(*place.rows_of(store, SERVED)) == plainly(row("/a", 1))
        assert store.mark() == mark(2)

    def test_changes_without_a_column_leave_rows_and_mark(self, place: Place, opened: Callable[..., Target]) -> None:
        store = opened()
        store.apply(changes(row("/a", 1)), mark(1))
        with pytest.raises(KeyError):
            store.apply(changes(row("/a", 1, -1)).drop_columns(["n"]), mark(2))
        assert plainly(*place.rows_of(store, SERVED)) == plainly(row("/a", 1))
        assert store.mark() == mark(1)

    def test_rows_without_a_key_are_there_as_often_as_they_are(
        self, place: Place, opened: Callable[..., Target]
    ) -> None:
        served = replace(SERVED, schema=ALL, key=())
        if self.no_bags:
            with pytest.raises(BadStore):
                opened(served)
            return
        store = opened(served)
        store.apply(changes(full("/a", 1), full("/a", 1, 2), full(None, 2), schema=ALL), mark(1))
        assert plainly(*place.rows_of(store, served)) == plainly(*[full("/a", 1)] * 3, full(None, 2))
        store.apply(changes(full("/a", 1, -2), full(None, 2, -1), full("/b", 3), schema=ALL), mark(2))
        assert plainly(*place.rows_of(store, served)) == plainly(full("/a", 1), full("/b", 3))

    def test_a_new_version_starts_empty_and_ends_the_old_one(self, place: Place, opened: Callable[..., Target]) -> None:
        old = opened()
        old.apply(changes(row("/a", 1)), mark(1))
        wider = FEW.append(pa.field("more", pa.string()))
        served = replace(SERVED, version="by_page@2.v2", schema=wider)
        new = opened(served)
        assert new.mark() == NOTHING
        assert place.rows_of(new, served) == []
        if not self.apart:
            with pytest.raises(StoreTaken, match="by_page@2.v2"):
                old.apply(changes(row("/b", 1)), mark(2), after=mark(1))
        one = {**row("/z", 1), "more": "x"}
        new.apply(changes(one, schema=wider), mark(1))
        assert plainly(*place.rows_of(new, served)) == plainly(one)

    def test_cleared_it_begins_again(self, place: Place, opened: Callable[..., Target]) -> None:
        store = opened()
        store.apply(changes(row("/a", 1)), mark(1))
        store.clear()
        assert store.mark() == NOTHING
        assert place.rows_of(store, SERVED) == []
        store.apply(changes(row("/b", 1)), mark(2), after=NOTHING)
        assert plainly(*place.rows_of(store, SERVED)) == plainly(row("/b", 1))

    def test_interrupted_anywhere_rows_and_mark_never_part(self, place: Place, opened: Callable[..., Target]) -> None:
        """At every few lines of an apply it is cut off, opened again, and the changes applied again if need be."""
        table: Counter[tuple[str | None, int]] = Counter()
        store, number, line, cut = opened(), 0, 1, True
        while cut:
            page = f"/{number % 3}"
            given = [(page, number, 1), ("/each", number, 1)]
            given += [(key, n, -times) for (key, n), times in table.items() if key in (page, "/each")]
            before, number = mark(number) if number else NOTHING, number + 1
            batch = changes(*(row(key, n, weight) for key, n, weight in given))
            try:
                with interrupted_at(line):
                    store.apply(batch, mark(number), after=before)
                cut = False
            except Interrupted:
                pass
            store.close()
            store = opened()
            if store.mark() == before:
                assert plainly(*place.rows_of(store, SERVED)) == plainly(*(row(k, n) for k, n in table.elements()))
                store.apply(batch, mark(number), after=before)
            table.update({(key, n): weight for key, n, weight in given})
            assert store.mark() == mark(number)
            assert plainly(*place.rows_of(store, SERVED)) == plainly(*(row(k, n) for k, n in table.elements()))
            line += self.lines_apart
        assert line > 1 + self.lines_apart, "it was never cut off"


class StoreContract(TargetContract):
    """For stores that answer, too."""

    def test_one_row_by_its_key(self, opened: Callable[..., Store]) -> None:
        store = opened()
        store.apply(changes(row("/a", 1), row(None, 2), row("", 3)), mark(1))
        assert store.get(["/a"]) == ({"page": "/a", "n": 1}, mark(1))
        assert store.get([None])[0] == {"page": None, "n": 2}
        assert store.get([""])[0] == {"page": "", "n": 3}
        assert store.get(["/none"]) == (None, mark(1))
        with pytest.raises(BadKey, match=r"has the key \(page\)"):
            store.get(["/a", 1])

    def test_a_key_given_as_text_is_read_as_its_type(self, opened: Callable[..., Store]) -> None:
        schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("said", pa.string())])
        store = opened(replace(SERVED, schema=schema, key=("id", "day")))
        day = datetime.date(2026, 1, 2)
        one = {"id": 7, "day": day, "said": "x"}
        store.apply(changes({**one, WEIGHT: 1}, schema=schema), mark(1))
        assert store.get(["7", "2026-01-02"])[0] == one
        assert store.get([7, day])[0] == one
        with pytest.raises(BadKey):
            store.get(["seven", day])

    def test_as_many_rows_as_are_asked_for(self, opened: Callable[..., Store]) -> None:
        store = opened()
        store.apply(changes(*(row(f"/{n}", n) for n in range(5))), mark(1))
        table, seen = store.read(limit=3)
        assert (table.num_rows, seen, table.schema) == (3, mark(1), FEW)

    def test_a_reader_sees_rows_and_mark_of_one_moment_and_that_something_came(
        self, opened: Callable[..., Store]
    ) -> None:
        store, reader = opened(), opened()
        before = reader.version()
        store.apply(changes(row("/a", 1)), mark(1))
        assert reader.version() != before
        table, seen = reader.read()
        assert (table.num_rows, seen) == (1, mark(1))

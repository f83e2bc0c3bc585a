"""Deciders as they are declared: fields become columns, old events are brought up to date, nonsense is refused."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest

import headwater as hw
from headwater.errors import BadDecider, BadName, DecisionFailed, HistoryBroken, SchemaRefused, UsageError
from tests.bank import ACCOUNT, Account, Deposit, bank


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Address:
    city: str
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Everything:
    flag: bool
    number: int
    real: float
    text: str
    raw: bytes
    moment: datetime
    day: date
    money: Decimal
    price: Annotated[Decimal, "decimal(18,2)"]
    code: uuid.UUID
    colour: Colour
    mode: Literal["slow", "fast"]
    tags: tuple[str, ...]
    numbers: list[int]
    address: Address
    notes: dict[str, int]
    maybe: int | None = None


FULL = Everything(
    flag=True,
    number=-(2**60),
    real=0.1,
    text="ü\n",
    raw=b"\0\1",
    moment=datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    day=date(2026, 1, 2),
    money=Decimal("12.345678901"),
    price=Decimal("9.99"),
    code=uuid.UUID(int=7),
    colour=Colour.RED,
    mode="fast",
    tags=("a", "b"),
    numbers=[],
    address=Address("Bern", ["x"]),
    notes={"a": 1},
)


@dataclass(frozen=True)
class Say:
    pass


def saying(given: Any, **otherwise: Any) -> dict[str, Any]:
    """A decider that answers a command with what is given."""
    return {
        "initial": list,
        "decide": lambda command, said: [given],
        "evolve": lambda said, event: [*said, event],
        "events": [type(given)],
        "commands": [Say],
        **otherwise,
    }


def test_fields_of_every_kind_are_read_again_as_they_were(tmp_path: Path) -> None:
    app = hw.App("all", log=f"file:{tmp_path}")
    app.decider("thing", **saying(FULL))
    app.command("thing", "a", Say())
    types = {each.name: str(each.type) for each in app.log.topic("thing").schema}
    assert types["money"] == "decimal128(38, 9)"
    assert types["price"] == "decimal128(18, 2)"
    assert types["tags"] == "list<item: string>"
    assert (types["colour"], types["address"], types["mode"]) == ("string", "string", "string")
    other = hw.App("all", log=f"file:{tmp_path}")
    (recorded,) = other.decider("thing", **saying(FULL)).history("a")
    assert recorded.event == FULL
    app.close()
    other.close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"number": "7"}, "could not be read again"),
        ({"moment": datetime(2026, 1, 1)}, "could not be read again"),
        ({"number": None}, "could not be read again"),
        ({"price": Decimal("0.001")}, "could not be read again"),
    ],
    ids=["text", "no zone", "none", "too fine"],
)
def test_an_event_that_would_be_read_as_something_else_is_refused(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    app = hw.App("all", log=f"file:{tmp_path}")
    app.decider("thing", **saying(Everything(**{**vars(FULL), **change})))
    with pytest.raises(DecisionFailed, match=told):
        app.command("thing", "a", Say())
    assert app.topics["thing"].read().num_rows == 0
    app.close()


class Renamed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    title: str


class Rename(pydantic.BaseModel):
    title: str


def test_pydantic_models_serve_as_well(tmp_path: Path) -> None:
    app = hw.App("all", log=f"file:{tmp_path}")
    page = app.decider(
        "page",
        initial="",
        decide=lambda command, title: Renamed(title=command.title),
        evolve=lambda title, event: event.title,
        events=[Renamed],
        commands=[Rename],
    )
    app.command("page", "a", Rename(title="one"))
    assert page.submit("a", "Rename", {"title": "two"}, None).events == (Renamed(title="two"),)
    assert page.state("a") == "two"
    with pytest.raises(hw.errors.BadCommand, match="no such field: 'colour'"):
        page.submit("a", "Rename", {"title": "x", "colour": "y"}, None)
    app.close()


def version_of(name: str, **fields: Any) -> type:
    return make_dataclass(name, list(fields.items()), frozen=True)


def replayed(tmp_path: Path, *generations: tuple[Any, dict[str, Any]]) -> list[Any]:
    """What the code of the last generation reads of the events of all, one of each."""
    for given, otherwise in generations:
        app = hw.App("all", log=f"file:{tmp_path}")
        decider = app.decider("thing", **saying(given, **otherwise))
        app.command("thing", "a", Say())
        events = [each.event for each in decider.history("a")]
        app.close()
    return events


def test_old_events_are_brought_up_to_date_revision_by_revision(tmp_path: Path) -> None:
    first = version_of("Moved", cents=int)
    second = version_of("Moved", amount=float)
    third = version_of("Moved", amount=float, currency=str)
    one: dict[Any, Callable[..., Any]] = {("Moved", 1): lambda old: {"amount": old["cents"] / 100}}
    two: dict[Any, Callable[..., Any]] = {**one, ("Moved", 2): lambda old: {**old, "currency": "CHF"}}
    events = replayed(
        tmp_path,
        (first(cents=150), {}),
        (second(amount=2.5), {"upcasters": one}),
        (third(amount=3.5, currency="EUR"), {"upcasters": two}),
    )
    assert events == [third(1.5, "CHF"), third(2.5, "CHF"), third(3.5, "EUR")]


def test_an_event_whose_class_is_gone_becomes_another(tmp_path: Path) -> None:
    old, new = version_of("Paid", cents=int), version_of("Settled", amount=int)
    upcasters = {("Paid", 1): lambda fields: new(fields["cents"] // 100)}
    events = replayed(tmp_path, (old(700), {}), (new(8), {"upcasters": upcasters}))
    assert events == [new(7), new(8)]
    with pytest.raises(HistoryBroken, match="event 1 is Paid of revision 1, which this code does not know"):
        replayed(tmp_path, (new(9), {}))


def test_a_field_that_was_added_with_a_default_needs_no_upcaster(tmp_path: Path) -> None:
    old = version_of("Paid", cents=int)
    new = make_dataclass("Paid", [("cents", int), ("currency", str, field(default="CHF"))], frozen=True)
    assert replayed(tmp_path, (old(1), {}), (new(2, "EUR"), {})) == [new(1, "CHF"), new(2, "EUR")]


def test_a_field_cannot_change_its_type_in_place(tmp_path: Path) -> None:
    with pytest.raises(SchemaRefused, match="cents"):
        replayed(tmp_path, (version_of("Paid", cents=int)(1), {}), (version_of("Paid", cents=str)("1"), {}))


@pytest.mark.parametrize(
    ("otherwise", "told"),
    [
        ({"events": []}, "has no events"),
        ({"commands": []}, "has no commands"),
        ({"events": [int]}, "is no dataclass and no pydantic model"),
        ({"events": [Deposit], "commands": [Deposit]}, "stands for two classes"),
        ({"decide": None}, r"\['decide'\] is no function"),
        ({"upcasters": {("Deposited", 2): dict}}, "an upcaster is missing before"),
        ({"snapshot_every": 0}, "snapshot_every is 0"),
        ({"tries": 0}, "tries is 0"),
        ({"events": [version_of("Odd", version=int)]}, "field 'version' of event Odd has the name of a column"),
        ({"events": [version_of("One", x=int), version_of("Two", x=str)]}, "do not agree about the field 'x'"),
    ],
)
def test_a_decider_that_cannot_work_is_refused_when_it_is_declared(
    tmp_path: Path, otherwise: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadDecider, match=told) as caught:
        bank(tmp_path, **otherwise)
    assert caught.value.do


def test_names_are_checked_and_given_once(tmp_path: Path) -> None:
    app = bank(tmp_path)
    with pytest.raises(UsageError, match="declared twice"):
        app.decider("account", **ACCOUNT)
    with pytest.raises(UsageError, match="declared twice"):
        app.decider("other", **{**ACCOUNT, "topic": "account"})
    with pytest.raises(BadName):
        app.decider("no name", **ACCOUNT)
    app.close()


def test_a_view_reads_events_by_their_fields(tmp_path: Path) -> None:
    app = bank(tmp_path)
    app.view(
        "balances",
        sql="""SELECT id, sum(CASE type WHEN 'Deposited' THEN amount WHEN 'Withdrawn' THEN -amount END) AS balance
               FROM account GROUP BY id""",
    )
    assert app.views["balances"].spec.inputs == ("account",)
    app.close()


def test_what_decide_gives_must_be_events(tmp_path: Path) -> None:
    app = bank(tmp_path, decide=lambda command, account: ["Deposited"])
    with pytest.raises(DecisionFailed, match="gave 'Deposited', which is none of its events"):
        app.command("account", "a", Deposit(1))
    app.close()


def test_evolve_that_raises_appends_nothing(tmp_path: Path) -> None:
    def broken(account: Account, event: Any) -> Account:
        raise ZeroDivisionError("oops")

    app = bank(tmp_path, evolve=broken)
    with pytest.raises(DecisionFailed, match="evolve raised ZeroDivisionError: oops"):
        app.command("account", "a", Deposit(1))
    assert app.topics["account"].read().num_rows == 0
    app.close()

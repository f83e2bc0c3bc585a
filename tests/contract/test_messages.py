"""What is told to somebody outside keeps the contract of stores, as messages: webhook, mail, lines."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from headwater.serve.store import Served, Target
from headwater.serve.stores.addresses import Allowed
from headwater.serve.stores.lines import Lines
from headwater.serve.stores.mail import MailMessenger, Server
from headwater.serve.stores.outbox import Outbox
from headwater.serve.stores.plainvalues import untold
from headwater.serve.stores.webhook import BODY_BYTES, WebhookMessenger, new_secret
from headwater.testing.stores_contract import (
    SERVED,
    Interrupted,
    Place,
    TargetContract,
    changes,
    interrupted_at,
    mark,
    row,
)


def summed(told: Iterable[dict[str, Any]], served: Served) -> list[dict[str, Any]]:
    """What somebody knows who adds up all changes."""
    weights: Counter[str] = Counter()
    for change in told:
        weights[json.dumps(change["row"], sort_keys=True)] += change["weight"]
    assert min(weights.values(), default=0) >= 0
    rows: list[dict[str, Any]] = untold([json.loads(text) for text in weights.elements()], served.schema).to_pylist()
    return rows


def webhook(url: str = "https://hooks.example.org/x") -> WebhookMessenger:
    return WebhookMessenger(url, [new_secret()], name="hook", allowed=Allowed())


def in_messages(target: Target, served: Served) -> list[dict[str, Any]]:
    assert isinstance(target, Outbox)
    bodies = [json.loads(each.body) for each in target.waiting()]
    return summed((change for body in bodies for change in body["data"]["changes"]), served)


class TestWebhook(TargetContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(lambda served: Outbox(tmp_path / "v.outbox", served, webhook(), name="hook"), in_messages)


class TestLines(TargetContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        out: dict[str, io.StringIO] = {}

        def opened(served: Served) -> Target:
            return Forgetful(
                tmp_path / "v.lines", served, name="stdout:", out=out.setdefault(served.version, io.StringIO())
            )

        def told(target: Target, served: Served) -> list[dict[str, Any]]:
            return summed((json.loads(line) for line in out[served.version].getvalue().splitlines()), served)

        return Place(opened, told)

    def test_interrupted_anywhere_rows_and_mark_never_part(
        self, place: Place, opened: Callable[..., Target], tmp_path: Path
    ) -> None:
        """Lines that were written cannot be taken back: cut off, they are told again, but none is left out."""
        out, line, number, cut = io.StringIO(), 1, 0, True
        while cut:
            store = Lines(tmp_path / "cut", SERVED, name="stdout:", out=out)
            before, number = store.mark(), number + 1
            try:
                with interrupted_at(line):
                    store.apply(changes(row(f"/{number}", number)), mark(number), after=before)
                cut = False
            except Interrupted:
                again = Lines(tmp_path / "cut", SERVED, name="stdout:", out=out)
                if again.mark() == before:
                    again.apply(changes(row(f"/{number}", number)), mark(number), after=before)
            line += self.lines_apart
        told = [json.loads(each)["row"]["n"] for each in out.getvalue().splitlines()]
        assert list(dict.fromkeys(told)) == list(range(1, number + 1))


class Forgetful(Lines):
    """Who reads the lines forgets them, when they begin again."""

    def clear(self) -> None:
        super().clear()
        assert isinstance(self._out, io.StringIO)
        self._out.truncate(0)
        self._out.seek(0)


def test_the_first_message_says_that_all_begins_here_and_later_ones_do_not(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o", SERVED, webhook(), name="hook")
    outbox.apply(changes(row("/a", 1)), mark(1))
    outbox.apply(changes(row("/a", 1, -1), row("/a", 2)), mark(2))
    first, second = (json.loads(message.body) for message in outbox.waiting())
    assert first["type"] == "by_page.changed"
    assert first["data"]["restart"] is True
    assert second["data"] == {
        "view": "by_page",
        "version": "by_page@1",
        "number": 2,
        "covers": "clicks:0=20",
        "restart": False,
        "part": 0,
        "changes": [{"weight": -1, "row": {"page": "/a", "n": 1}}, {"weight": 1, "row": {"page": "/a", "n": 2}}],
    }
    outbox.close()


def test_many_changes_are_several_messages_of_moderate_size(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o", SERVED, webhook(), name="hook")
    outbox.apply(changes(*(row(f"/{n}/{'x' * 100}", n) for n in range(1000))), mark(1))
    bodies = [message.body for message in outbox.waiting()]
    assert all(len(body) < BODY_BYTES + 1000 for body in bodies)
    assert [json.loads(body)["data"]["part"] for body in bodies] == list(range(len(bodies)))
    assert sum(len(json.loads(body)["data"]["changes"]) for body in bodies) == 1000
    assert len({message.message_id for message in outbox.waiting()}) == len(bodies)
    outbox.close()


def test_a_mail_says_what_changed_and_not_everything(tmp_path: Path) -> None:
    messenger = MailMessenger("ops@example.org", sender="hw@example.org", server=Server("localhost"))
    outbox = Outbox(tmp_path / "o", SERVED, messenger, name="mailto:")
    outbox.apply(changes(*(row(f"/{n}", n) for n in range(80))), mark(1))
    (message,) = outbox.waiting()
    subject, *lines = message.body.decode().splitlines()
    assert subject == "by_page: 80 rows changed"
    assert "... and 30 more" in lines
    assert lines[-1] == "Up to clicks:0=10"
    outbox.close()


def test_an_empty_apply_tells_nobody(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o", SERVED, webhook(), name="hook")
    outbox.apply(changes(), mark(1))
    assert (outbox.waiting(), outbox.mark()) == ([], mark(1))
    outbox.close()

"""Queues and groups over HTTP, with the calls of `Queue` and `Consumer`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

import pyarrow as pa

from headwater.client.steps import ARROW, Steps, sent
from headwater.log.groups import SESSION_S
from headwater.log.queues import ATTEMPTS, LEASE_S, Delivery

# --- queues ---


def create_queue(
    queue: str,
    topic: str,
    *,
    lease_s: float = LEASE_S,
    attempts: int = ATTEMPTS,
    dead: str | None = None,
    start: Literal["start", "end"] = "start",
) -> Steps[None]:
    """Make the queue, or find it as it is if it was made alike."""
    body = {"topic": topic, "lease_s": lease_s, "attempts": attempts, "dead": dead, "start": start}
    yield from sent("PUT", _queue(queue), body)


def take(queue: str, count: int = 1, *, wait_s: float = 0.0) -> Steps[list[Delivery]]:
    """Up to `count` records, as soon as there are any; an empty list when the time is up."""
    body = {"count": count, "wait_s": wait_s}
    answer = yield from sent("POST", f"{_queue(queue)}/take", body, wait_s=wait_s, again=False)
    taken = answer.json()["deliveries"]
    return [Delivery(**{**each, "until": datetime.fromisoformat(each["until"])}) for each in taken]


def acknowledge(queue: str, delivery: Delivery) -> Steps[None]:
    yield from _settled(queue, "acknowledge", delivery)


def release(queue: str, delivery: Delivery) -> Steps[None]:
    yield from _settled(queue, "release", delivery)


def reject(queue: str, delivery: Delivery) -> Steps[None]:
    yield from _settled(queue, "reject", delivery)


def extend(queue: str, delivery: Delivery, *, lease_s: float | None = None) -> Steps[Delivery]:
    """The same delivery with the later `until`; its receipt stays."""
    body = {"receipt": delivery.receipt, "lease_s": lease_s}
    answer = yield from sent("POST", f"{_queue(queue)}/extend", body)
    return replace(delivery, until=datetime.fromisoformat(answer.json()["until"]))


def _settled(queue: str, how: str, delivery: Delivery) -> Steps[None]:
    # A repeated one whose first answer got lost would be told that the lease is lost, though all is well.
    yield from sent("POST", f"{_queue(queue)}/{how}", {"receipt": delivery.receipt}, again=False)


def _queue(queue: str) -> str:
    return f"/queues/{quote(queue, safe='')}"


# --- groups ---


class Membership:
    """One member of a group: what it has read in its generation is known here, and sent with every poll."""

    def __init__(
        self,
        group: str,
        topic: str,
        *,
        member: str | None = None,
        session_s: float = SESSION_S,
        start: Literal["start", "end"] = "start",
    ) -> None:
        self.member = member or f"member-{uuid.uuid4().hex[:12]}"
        self._path = f"/topics/{quote(topic, safe='')}/groups/{quote(group, safe='')}"
        self._session_s = session_s
        self._start = start
        self._generation = 0
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def join(self) -> Steps[None]:
        body = {"member": self.member, "session_s": self._session_s, "start": self._start}
        told = (yield from sent("POST", f"{self._path}/join", body)).json()
        self._adopt(told["generation"], told["next"])

    def poll(self, timeout_s: float = 1.0, *, max_rows: int = 10_000) -> Steps[pa.Table | None]:
        """The next records of its partitions, with metadata columns, as soon as there are any; None when time is up."""
        body = {
            "member": self.member,
            "generation": self._generation,
            "next": self._next,
            "session_s": self._session_s,
            "wait_s": min(timeout_s, 60.0),
            "max_rows": max_rows,
        }
        headers = {"Accept": ARROW}
        answer = yield from sent("POST", f"{self._path}/poll", body, headers=headers, wait_s=timeout_s)
        self._adopt(int(answer.headers["headwater-generation"]), json.loads(answer.headers["headwater-next"]))
        records = answer.table()
        return records if records.num_rows else None

    def commit(self, offsets: Mapping[int, int] | None = None) -> Steps[None]:
        """All that was polled is done with; or, with `offsets`, only what is before them."""
        wanted = dict(self._next if offsets is None else offsets)
        if not self._generation or all(self._committed.get(p) == offset for p, offset in wanted.items()):
            return
        body = {"member": self.member, "generation": self._generation, "offsets": wanted}
        yield from sent("POST", f"{self._path}/commit", body)
        self._committed.update(wanted)

    def leave(self) -> Steps[None]:
        yield from sent("POST", f"{self._path}/leave", {"member": self.member})

    def _adopt(self, generation: int, next_: Mapping[str, Any]) -> None:
        if generation != self._generation:
            self._committed = {}
        self._generation = generation
        self._next = {int(partition): offset for partition, offset in next_.items()}

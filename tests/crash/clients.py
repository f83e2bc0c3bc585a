"""Clients of one bank account, as threads of processes, and what must hold of what they were told."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import headwater as hw
from headwater.errors import CommandRefused
from tests.bank import Deposit, Deposited, Withdraw, Withdrawn, bank


@dataclass(frozen=True)
class Sent:
    """A command, and what its sender knows of it. "unknown": it was killed before it had an answer."""

    command_id: str
    amount: int
    """Below zero: a withdrawal."""
    outcome: Literal["done", "refused", "unknown"]
    version: int = 0


@dataclass(frozen=True)
class Stored:
    command_id: str | None
    amount: int
    version: int


def send(app: hw.App, account: str, command_id: str, amount: int) -> Sent:
    command: Any = Deposit(amount) if amount > 0 else Withdraw(-amount)
    try:
        decided = app.command("account", account, command, command_id=command_id)
    except CommandRefused:
        return Sent(command_id, amount, "refused")
    return Sent(command_id, amount, "done", decided.version)


def amounts(seed: int, count: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.choice([1, 2, 3, -1, -2, -4]) for _ in range(count)]


def clients(app: hw.App, name: str, threads: int, count: int) -> list[Sent]:
    """So many threads, each with its commands, all on one account."""
    told: list[Sent] = []

    def work(number: int) -> None:
        for at, amount in enumerate(amounts(hash((name, number)) % 1000, count)):
            told.append(send(app, "shared", f"{name}-{number}-{at}", amount))

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    return told


def client_process(folder: str, name: str, threads: int, count: int, answers: Any) -> None:
    app = bank(Path(folder), snapshot_every=7)
    answers.put(clients(app, name, threads, count))
    app.close()


def until_killed(folder: str, name: str, first: int, acknowledged: Any) -> None:
    """Commands first, first + 1, ... one after the other; tells the number of those that are done."""
    app = bank(Path(folder), snapshot_every=7)
    for number in range(first, 1_000_000):
        send(app, "shared", f"{name}-{number}", 1)
        acknowledged.value = number + 1


def stored(app: hw.App, account: str) -> list[Stored]:
    """Read from the topic itself, not by the decider."""
    rows = app.topics["account"].read().to_pylist()
    own = sorted((row for row in rows if row["id"] == account), key=lambda row: row["_offset"])
    signs = {Deposited.__name__: 1, Withdrawn.__name__: -1}
    return [Stored(row["command_id"], signs[row["type"]] * row["amount"], row["version"]) for row in own]


def findings(sent: Iterable[Sent], events: Sequence[Stored]) -> list[str]:
    """What is wrong: updates lost, doubled, made up, decided on a state that was not the last one."""
    found = []
    if [each.version for each in events] != list(range(1, len(events) + 1)):
        found.append("versions are not 1, 2, 3, ...: an update was decided on a state that was not the last")
    balance = 0
    for each in events:
        balance += each.amount
        if balance < 0:
            found.append(f"after event {each.version} the balance is {balance}")
    by_id: dict[str | None, list[Stored]] = {}
    for each in events:
        by_id.setdefault(each.command_id, []).append(each)
    for command in sent:
        own = by_id.pop(command.command_id, [])
        if command.outcome == "done" and not own:
            found.append(f"{command.command_id} was acknowledged and is lost")
        if command.outcome == "refused" and own:
            found.append(f"{command.command_id} was refused and is there")
        if len(own) > 1:
            found.append(f"{command.command_id} is there {len(own)} times")
        if own and own[0].amount != command.amount:
            found.append(f"{command.command_id} is there as {own[0].amount}")
        if command.outcome == "done" and own and own[0].version != command.version:
            found.append(f"{command.command_id} was told version {command.version}, it is {own[0].version}")
    return found + [f"{command_id} was sent by nobody" for command_id in by_id]

"""Commands a second: ours against the Python library `eventsourcing` on SQLite, on one aggregate and on a thousand.

Both decide on the same accounts in one process, both answer a command only when it is on disk: SQLite in WAL mode at
synchronous=FULL here as there (the library leaves SQLite's default in place; what it is, is asked and reported). The
library is measured as it comes and with its own cache of aggregates switched on; the faster of the two is the peer.
Clients are threads; the rounds of both take turns, after a round that is not counted.

    python benchmarks/for_serve/commands.py     prints the figures as JSON
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import IntegrityError, OperationalError

import headwater as hw

ROUNDS = 3
ROUND_S = 1.5
CLIENTS = (1, 20)
AGGREGATES = (1, 1000)

Command = Callable[[int], None]
"""Deposits 1 into the account of that number."""


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Account:
    balance: int = 0


@contextmanager
def ours(folder: Path, *, with_ids: bool = False) -> Iterator[Command]:
    app = hw.App("bank", log=f"file:{folder}")
    app.decider(
        "account",
        initial=Account(),
        decide=lambda command, account: [Deposited(command.amount)],
        evolve=lambda account, event: Account(account.balance + event.amount),
        events=[Deposited],
        commands=[Deposit],
    )
    numbers = iter(range(1_000_000_000))

    def command(account: int) -> None:
        app.command("account", f"account-{account}", Deposit(1), command_id=str(next(numbers)) if with_ids else None)

    yield command
    app.close()


class BankAccount(Aggregate):
    def __init__(self) -> None:
        self.balance = 0

    @event("Deposited")
    def deposit(self, amount: int) -> None:
        self.balance += amount


class Bank(Application[UUID]):
    def open(self) -> UUID:
        account = BankAccount()
        self.save(account)
        return account.id

    def deposit(self, account_id: UUID, amount: int) -> None:
        while True:
            try:
                account: Any = self.repository.get(account_id)
                account.deposit(amount)
                self.save(account)
                return
            except (IntegrityError, OperationalError):  # somebody was faster
                continue


@contextmanager
def library(folder: Path, *, cache: bool, told: dict[str, Any] | None = None) -> Iterator[Command]:
    """As its documents show it: an application with a method for the command, repeated when somebody was faster."""
    folder.mkdir(parents=True)
    settings = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "events.db")}
    if cache:
        settings["AGGREGATE_CACHE_MAXSIZE"] = "10000"
    bank = Bank(env=settings)
    if told is not None:
        told.update(_pragmas(bank))
    opened = [bank.open() for _ in range(max(AGGREGATES))]
    yield lambda account: bank.deposit(opened[account], 1)
    bank.close()


def _pragmas(bank: Any) -> dict[str, Any]:
    found = {}
    with bank.recorder.datastore.transaction(commit=False) as cursor:
        for name in ("journal_mode", "synchronous"):
            cursor.execute(f"PRAGMA {name}")
            found[name] = cursor.fetchone()[0]
    return found


def commands_per_s(command: Command, *, clients: int, aggregates: int) -> float:
    """For a while, from so many threads; accounts take turns, and each thread begins at another one."""
    done = [0] * clients
    until = time.perf_counter() + ROUND_S
    failed: list[BaseException] = []

    def work(client: int) -> None:
        account = client * 53
        try:
            while time.perf_counter() < until:
                command(account % aggregates)
                account += 1
                done[client] += 1
        except BaseException as error:  # noqa: BLE001  (told by the thread that measures)
            failed.append(error)

    began = time.perf_counter()
    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failed:
        raise failed[0]
    return sum(done) / (time.perf_counter() - began)


def measure() -> dict[str, Any]:
    """All figures: for each number of clients and aggregates, ours, the peer's two, and the ratio to the better one."""
    figures: dict[str, Any] = {"unit": "commands/s", "peer_name": "eventsourcing on SQLite"}
    peer: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for aggregates in AGGREGATES:
            for clients in CLIENTS:
                place = Path(folder) / f"{aggregates}-{clients}"
                with (
                    ours(place / "ours") as mine,
                    ours(place / "ours-with-ids", with_ids=True) as mine_with_ids,
                    library(place / "plain", cache=False, told=peer) as plain,
                    library(place / "cached", cache=True) as cached,
                ):
                    figures[f"{aggregates} aggregates, {clients} clients"] = _compared(
                        {"ours": mine, "ours, with ids": mine_with_ids, "plain": plain, "cached": cached},
                        clients=clients,
                        aggregates=aggregates,
                    )
    figures["durability"] = {"ours": {"journal_mode": "wal", "synchronous": 2}, "peer": peer}
    return figures


def _compared(candidates: dict[str, Command], *, clients: int, aggregates: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(ROUNDS + 1):
        for name, command in candidates.items():
            speed = commands_per_s(command, clients=clients, aggregates=aggregates)
            if number:
                found[name].append(speed)
    speeds = {name: round(statistics.median(each)) for name, each in found.items()}
    peer = max(speeds["plain"], speeds["cached"])
    return {
        "ours": speeds["ours"],
        "ours_with_ids": speeds["ours, with ids"],
        "peer": peer,
        "peer_plain": speeds["plain"],
        "peer_with_its_cache": speeds["cached"],
        "ratio": round(speeds["ours"] / peer, 2),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(), indent=2) + "\n")

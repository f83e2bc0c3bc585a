"""A bank of accounts, the decider that several tests use: pure functions and plain classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import headwater as hw


@dataclass(frozen=True)
class Open:
    email: str


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


@dataclass(frozen=True)
class ChangeEmail:
    email: str


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class Opened:
    email: str


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Withdrawn:
    amount: int


@dataclass(frozen=True)
class EmailChanged:
    email: str


@dataclass(frozen=True)
class Closed:
    pass


@dataclass(frozen=True)
class Account:
    balance: int = 0
    email: str | None = None


def decide(command: Any, account: Account) -> Any:
    match command:
        case Open(email):
            return Opened(email) if account.email is None else None
        case Deposit(amount):
            return [Deposited(amount)]
        case Withdraw(amount):
            if amount > account.balance:
                hw.refuse(f"the balance is {account.balance}")
            return [Withdrawn(amount)]
        case ChangeEmail(email):
            return [EmailChanged(email)]
        case Close():
            return [Withdrawn(account.balance), Closed()] if account.balance else [Closed()]


def evolve(account: Account, event: Any) -> Account:
    match event:
        case Opened(email) | EmailChanged(email):
            return replace(account, email=email)
        case Deposited(amount):
            return replace(account, balance=account.balance + amount)
        case Withdrawn(amount):
            return replace(account, balance=account.balance - amount)
        case Closed():
            return replace(account, email=None)
    raise AssertionError(event)


ACCOUNT: dict[str, Any] = {
    "initial": Account(),
    "decide": decide,
    "evolve": evolve,
    "events": [Opened, Deposited, Withdrawn, EmailChanged, Closed],
    "commands": [Open, Deposit, Withdraw, ChangeEmail, Close],
}


def bank(folder: Path | str, **otherwise: Any) -> hw.App:
    app = hw.App("bank", log=f"file:{folder}")
    app.decider("account", **{**ACCOUNT, **otherwise})
    return app

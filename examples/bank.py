"""A bank: commands become events, events become accounts, and a view in SQL of all balances.

python examples/bank.py            sends some commands and shows what became of them
headwater run examples/bank.py     keeps the view up to date; then: headwater view get balances alice
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

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
class Opened:
    email: str


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Withdrawn:
    amount: int


@dataclass(frozen=True)
class Account:
    email: str | None = None
    balance: int = 0


Command = Open | Deposit | Withdraw
Event = Opened | Deposited | Withdrawn


def decide(command: Command, account: Account) -> list[Event]:
    match command:
        case Open(email):
            if account.email is not None:
                hw.refuse("the account is open already")
            return [Opened(email)]
        case Deposit(amount):
            if amount <= 0:
                hw.refuse("a deposit is above zero")
            return [Deposited(amount)]
        case Withdraw(amount):
            if amount > account.balance:
                hw.refuse(f"the balance is {account.balance}")
            return [Withdrawn(amount)]


def evolve(account: Account, event: Event) -> Account:
    match event:
        case Opened(email):
            return replace(account, email=email)
        case Deposited(amount):
            return replace(account, balance=account.balance + amount)
        case Withdrawn(amount):
            return replace(account, balance=account.balance - amount)


app = hw.App("bank", log="file:data/bank")
accounts = app.decider(
    "account",
    initial=Account(),
    decide=decide,
    evolve=evolve,
    commands=[Open, Deposit, Withdraw],
    events=[Opened, Deposited, Withdrawn],
    unique=lambda account: [("email", account.email)],
)
app.view(
    "balances",
    sql="""SELECT id, sum(CASE type WHEN 'Withdrawn' THEN -amount ELSE amount END) AS balance, count(*) AS events
           FROM account GROUP BY id""",
)


def main() -> None:
    for name in ("alice", "bob"):
        app.command("account", name, Open(f"{name}@example.org"), command_id="opening")
    app.command("account", "alice", Deposit(100))
    paid = app.command("account", "alice", Withdraw(30), command_id="rent, May")
    again = app.command("account", "alice", Withdraw(30), command_id="rent, May")
    tell = sys.stdout.write
    tell(f"paid: {paid.events}, version {paid.version}; sent twice, counted once: {again.repeated}\n")
    for refused in (Withdraw(1_000_000), Open("bob@example.org")):
        try:
            app.command("account", "alice", refused)
        except hw.errors.HeadwaterError as error:
            tell(f"refused: {error}\n")
    for recorded in accounts.history("alice"):
        tell(f"  {recorded.version} {recorded.at:%H:%M:%S} {recorded.event}\n")
    tell(f"now: {accounts.state('alice')}\nafter its second event: {accounts.state('alice', as_of=2)}\n")
    app.close()


if __name__ == "__main__":
    main()

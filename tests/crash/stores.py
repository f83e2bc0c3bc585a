"""A process that applies to a store, append after append, until it is killed: `python -m tests.crash.stores KIND URL`.

Append N makes every row say N, and takes away what was there before.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headwater.serve.store import Served, Target
from headwater.serve.stores.destinations import destination
from headwater.serve.stores.sqlite import SqliteStore
from headwater.testing.stores_contract import FEW, changes, mark, row

FILLER = 2000
"""Rows that each append replaces, so that an apply takes long enough to be killed in the middle."""


def served(folder: Path) -> Served:
    return Served("v", "v@1", FEW, ("page",), folder)


def opened(kind: str, where: str) -> Target:
    if kind == "sqlite":
        return SqliteStore(Path(where) / "v.db", FEW, ("page",))
    return destination(where).open(served(Path("unused")))


def applied(store: Target, number: int) -> None:
    old = [row("total", number - 1, -1), *(row(f"f{n}", number - 1, -1) for n in range(FILLER))] if number > 1 else []
    new = [row("total", number), *(row(f"f{n}", number) for n in range(FILLER))]
    before = store.mark()
    store.apply(changes(*old, *new), mark(number), after=before)


def main(kind: str, where: str) -> None:
    store = opened(kind, where)
    number = store.mark().number
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        number += 1
        applied(store, number)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

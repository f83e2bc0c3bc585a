"""What a statement in the binlog means for the tables that are captured.

Rows are told as rows; what stands there as a statement ends a transaction, or alters tables. It is not parsed in full:
where it is not clear whether a statement changes a table's rows, it is taken to.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Meaning = Literal["begin", "commit", "prepared", "truncate", "alter", "rows", "nothing"]
"""`rows`: a statement that was logged instead of the rows that it changed. `prepared`: of a two-phase commit."""

COMMENT = re.compile(r"/\*(?![!M]).*?\*/|/\*M?!\d*|\*/|--\s[^\n]*|#[^\n]*", re.DOTALL)
WORD = re.compile(r"`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([\w$]+)|(\.)")
DML = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH")
ALTERING = ("ALTER", "DROP", "RENAME", "CREATE")
BESIDE = ("INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "TRIGGER", "VIEW", "TEMPORARY", "USER", "ROLE", "EVENT", "SEQUENCE")
"""What is made or dropped without a change of rows."""
SKIPPED = ("TABLE", "TABLES", "IF", "NOT", "EXISTS", "OR", "REPLACE", "ONLINE", "OFFLINE", "IGNORE", "WAIT", "NOWAIT")
"""Words between the verb and the name of a table."""

TableName = tuple[str, str]
"""Its database and its own."""


@dataclass(frozen=True)
class Statement:
    meaning: Meaning
    tables: tuple[TableName, ...] = ()
    """Those of the captured ones that it concerns."""


def read_statement(query: str, database: str, captured: Collection[TableName]) -> Statement:
    """`database` is where the statement was run."""
    named = _named(COMMENT.sub(" ", query)[:100_000])
    words = [name.upper() for _, name, bare in named[:6] if bare]
    first, second = (*words, "", "")[:2]
    plain = _plain(first, second)
    if plain is not None:
        return Statement(plain)
    if first in DML:
        return Statement("rows", _mentioned(named, database, captured, anywhere=True))
    if first == "TRUNCATE":
        return Statement("truncate", _mentioned(named, database, captured, anywhere=False))
    if first not in ALTERING or any(word in BESIDE for word in words[1:4]):
        return Statement("nothing")
    if second in ("DATABASE", "SCHEMA"):
        gone = {name.lower() for _, name, _ in named[2:]} if first == "DROP" else set()
        return Statement("alter", tuple(each for each in captured if each[0].lower() in gone))
    every = {name.upper() for _, name, bare in named if bare}
    anywhere = first in ("DROP", "RENAME") or bool(every & {"RENAME", "EXCHANGE"})
    return Statement("alter", _mentioned(named, database, captured, anywhere=anywhere))


def _plain(first: str, second: str) -> Meaning | None:
    """What begins and ends transactions."""
    if first == "BEGIN" or (first, second) in (("START", "TRANSACTION"), ("XA", "START"), ("XA", "BEGIN")):
        return "begin"
    if first == "COMMIT" or (first == "ROLLBACK" and second != "TO"):
        return "commit"
    if first == "XA":
        return "prepared"
    return "nothing" if first in ("SAVEPOINT", "ROLLBACK", "RELEASE") else None


def _named(text: str) -> list[tuple[str, str, bool]]:
    """Names and words in their order, with the database if one stands before: (database, name, not in quotes)."""
    found: list[tuple[str, str, bool]] = []
    dotted = False
    for ticked, doubled, bare, dot in WORD.findall(text):
        if dot:
            dotted = True
            continue
        name = ticked.replace("``", "`") or doubled.replace('""', '"') or bare
        if dotted and found:
            found[-1] = (found[-1][1], name, False)
        else:
            found.append(("", name, bool(bare)))
        dotted = False
    return found


def _mentioned(
    named: list[tuple[str, str, bool]], database: str, captured: Collection[TableName], *, anywhere: bool
) -> tuple[TableName, ...]:
    """Captured tables among the names, or only the first name that is one."""
    rest = [each for place, each in enumerate(named[1:]) if place > 6 or not each[2] or each[1].upper() not in SKIPPED]
    told = {((of or database).lower(), name.lower()) for of, name, _ in (rest if anywhere else rest[:1])}
    return tuple(each for each in captured if (each[0].lower(), each[1].lower()) in told)

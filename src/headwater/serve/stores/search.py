"""A view's rows with a full-text index over its text: SQLite's FTS5, in the same file and transaction as the rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw
import pyarrow as pa

from headwater.errors import BadRequest, BadStore
from headwater.serve.store import Mark, Served
from headwater.serve.stores.sqlite import SqliteStore, mark_of


class SearchStore(SqliteStore):
    """Table `words` indexes columns of `rows`; triggers keep it in step, so whatever changes rows changes it too."""

    def __init__(self, path: Path, served: Served, *, columns: Sequence[str], name: str) -> None:
        text = [field.name for field in served.schema if pa.types.is_string(field.type)]
        unknown = [column for column in columns if column not in text]
        if unknown or not text:
            what = f"{unknown[0]!r} is no column of text" if unknown else "there is no column of text to search in"
            raise BadStore(store=name, why=what, do=f"Columns of text in {served.view!r}: {', '.join(text) or 'none'}")
        super().__init__(path, served.schema, served.key)
        indexed = [_quoted(column) for column in columns or text]
        with self._transaction("BEGIN IMMEDIATE") as connection:
            if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'words'").fetchone():
                return
            listed = ", ".join(indexed)
            new, old = (", ".join(f"{row}.{column}" for column in indexed) for row in ("new", "old"))
            connection.execute(
                f"CREATE VIRTUAL TABLE words USING fts5({listed}, content='rows', content_rowid='rowid')"
            )
            connection.execute(
                "CREATE TRIGGER words_come AFTER INSERT ON rows BEGIN"
                f" INSERT INTO words(rowid, {listed}) VALUES (new.rowid, {new}); END"
            )
            connection.execute(
                "CREATE TRIGGER words_go AFTER DELETE ON rows BEGIN"
                f" INSERT INTO words(words, rowid, {listed}) VALUES ('delete', old.rowid, {old}); END"
            )

    def search(self, query: str, *, limit: int = 20) -> tuple[pa.Table, Mark]:
        """The rows that match best, the best first, and the mark they stand for.

        Words must all be there; also FTS5's own language: "a phrase", begin*, a OR b, NOT c, column: word.
        """
        names = ", ".join(f"rows.{_quoted(name)}" for name in self.schema.names)
        matching = f"SELECT {names} FROM words JOIN rows ON rows.rowid = words.rowid WHERE words MATCH ?"
        with self._transaction() as connection:
            try:
                rows = connection.execute(f"{matching} ORDER BY rank, rows.rowid LIMIT ?", (query, limit)).fetchall()
            except apsw.SQLError as error:
                do = 'Put words with signs in them in double quotes, as in "e-mail"'
                raise BadRequest(why=f"{query!r} cannot be searched for: {error}", do=do) from None
            return self._table(rows), mark_of(connection)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

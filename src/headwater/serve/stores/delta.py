"""A view's rows in a Delta table, for a warehouse. The mark goes along in each commit: rows and mark are one act.

The table has the view's columns and `_part`, by which it is partitioned: a row's part is made of its values. An apply
rewrites the touched parts in one commit, which also carries the transaction id `headwater/VERSION` with the append
number, so that of two writers one is refused. Delta has no unsigned numbers: they become the next wider type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import BadStore, StoreFailed, StoreMoved, StoreTaken
from headwater.serve.store import NOTHING, Mark, Served, expect
from headwater.serve.stores.net import net
from headwater.serve.stores.parquet import by_part, merged

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

PARTS = 8
PART = "_part"
VERSION, MARK = "headwater.version", "headwater.mark"
TIDY_AFTER = 200
"""Every so many applies, files that no version of the last week lists are removed."""


class DeltaFolder:
    def __init__(self, folder: Path, served: Served, *, name: str) -> None:
        self._folder = folder
        self._served = served
        self._name = name
        self._written = pa.schema([*map(_signed_field, served.schema), pa.field(PART, pa.int32())])
        self._applied = 0
        with self._translated():
            table = self._table()
            if table is None or self._told(table)[0] != served.version:
                self._replace(NOTHING)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            from deltalake.exceptions import CommitFailedError, DeltaError
        except ModuleNotFoundError:
            do = "Install it: pip install 'headwater[delta]'"
            raise BadStore(store=self._name, why="the package deltalake is not installed", do=do) from None
        try:
            yield
        except CommitFailedError as error:
            raise StoreMoved(store=self._name, expected=-1, found=-1) from error
        except (DeltaError, OSError) as error:
            raise StoreFailed(store=self._name, why=str(error).partition("\n")[0]) from error

    def _table(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        return DeltaTable(self._folder) if DeltaTable.is_deltatable(str(self._folder)) else None

    def _told(self, table: DeltaTable) -> tuple[str, Mark]:
        """What our last commit says: others may have tidied up since. Nothing, if its entry is no longer kept."""
        for commit in table.history():
            if MARK in commit:
                return commit[VERSION], Mark.parse(commit[MARK])
        return "", NOTHING

    def mark(self) -> Mark:
        with self._translated():
            return self._mark(self._table())

    def _mark(self, table: DeltaTable | None) -> Mark:
        version, mark = self._told(table) if table is not None else ("", NOTHING)
        if version != self._served.version:
            raise StoreTaken(store=self._name, by=version)
        return mark

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        from deltalake import write_deltalake

        some = by_part(net(changes, self._served.schema), PARTS)
        with self._translated():
            table = self._table()
            expect(self._mark(table), after, store=self._name)
            assert table is not None
            rows = [self._changed(table, part, of) for part, of in some.items()]
            listed = ", ".join(map(str, some)) or "-1"
            write_deltalake(
                table,
                pa.concat_tables([self._written.empty_table(), *rows]),
                mode="overwrite",
                predicate=f"{PART} IN ({listed})",
                commit_properties=self._properties(mark),
            )
            self._applied += 1
            if self._applied % TIDY_AFTER == 0:
                table.vacuum(dry_run=False)

    def _changed(self, table: DeltaTable, part: int, some: Any) -> pa.Table:
        before = table.to_pyarrow_table(filters=[(PART, "=", part)]).drop_columns([PART])
        rows = merged(_as(before, self._served.schema), some, self._served.schema)
        signed = _as(rows, pa.schema(list(self._written)[:-1]))
        return signed.append_column(self._written.field(PART), pa.array([part] * rows.num_rows, pa.int32()))

    def _replace(self, mark: Mark) -> None:
        from deltalake import write_deltalake

        write_deltalake(
            self._folder,
            self._written.empty_table(),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=[PART],
            name=self._served.view,
            commit_properties=self._properties(mark),
        )

    def _properties(self, mark: Mark) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(
            custom_metadata={VERSION: self._served.version, MARK: str(mark)},
            app_transactions=[Transaction(app_id=f"headwater/{self._served.version}", version=mark.number)],
        )

    def clear(self) -> None:
        with self._translated():
            self._mark(self._table())
            self._replace(NOTHING)

    def read(self) -> pa.Table:
        """The rows as the view has them; a warehouse reads the table itself."""
        with self._translated():
            table = self._table()
            assert table is not None
            return _as(table.to_pyarrow_table().drop_columns([PART]), self._served.schema)

    def close(self) -> None:
        """Nothing stays open."""


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.select(schema.names).cast(schema)


def _signed_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _signed(field.type))


def _signed(kind: pa.DataType) -> pa.DataType:
    wider = {
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0),
    }
    if pa.types.is_list(kind):
        return pa.list_(_signed(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([_signed_field(field) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_signed(kind.key_type), _signed(kind.item_type))
    return wider.get(kind, kind)

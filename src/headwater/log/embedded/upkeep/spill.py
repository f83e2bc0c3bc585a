"""Records set aside on disk for a moment, sorted into ways: files without a name, which are gone with this process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pyarrow as pa
from pyarrow import ipc

from headwater.errors import StorageFailed


class Spill:
    """Each way is first written, then read, once."""

    def __init__(self, folder: Path, ways: int) -> None:
        self._folder = folder
        self._files: list[IO[bytes] | None] = [None] * ways
        self._writers: list[Any] = [None] * ways
        self._opened = ExitStack()

    def __enter__(self) -> Spill:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def __len__(self) -> int:
        return len(self._files)

    def write(self, way: int, records: pa.Table, *, batch_rows: int | None = None) -> None:
        with self._translated():
            if self._files[way] is None:
                self._files[way] = self._opened.enter_context(tempfile.TemporaryFile(dir=self._folder))  # noqa: SIM115
                self._writers[way] = ipc.new_stream(self._files[way], records.schema)
            self._writers[way].write_table(records, max_chunksize=batch_rows)

    def read(self, way: int) -> Iterator[pa.Table]:
        file = self._files[way]
        if file is None:
            return
        with self._translated():
            self._writers[way].close()
            file.seek(0)
            for batch in ipc.open_stream(file):
                yield pa.Table.from_batches([batch])

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageFailed(
                act="setting aside records in", file=str(self._folder), why=error.strerror or str(error)
            ) from error

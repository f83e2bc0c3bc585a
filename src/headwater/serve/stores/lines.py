"""Changes of a view as lines of JSON, for people and pipes: {"view": "by_page", "weight": 1, "row": {...}}.

At least once: what was written cannot be taken back, so the mark follows the lines. It rests in a file of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TextIO

import pyarrow as pa

from headwater.errors import StoreFailed, StoreTaken
from headwater.serve.store import NOTHING, Mark, Served, expect
from headwater.serve.stores.net import net
from headwater.serve.stores.plainvalues import told


class Lines:
    def __init__(self, path: Path, served: Served, *, name: str, out: TextIO | None = None) -> None:
        self._path = path
        self._served = served
        self._name = name
        self._out = out
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or self._told()["version"] != served.version:
            self._save(NOTHING)

    def _told(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._path.read_text())
        return found

    def mark(self) -> Mark:
        found = self._told()
        if found["version"] != self._served.version:
            raise StoreTaken(store=self._name, by=found["version"])
        return Mark.parse(found["mark"])

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        expect(self.mark(), after, store=self._name)
        some = net(changes, self._served.schema)
        weighted = [(-times, row) for times, row in zip(some.gone_times, told(some.gone), strict=True)]
        weighted += list(zip(some.here_times, told(some.here), strict=True))
        about = {"view": self._served.view}
        lines = [json.dumps({**about, "weight": weight, "row": row}, ensure_ascii=False) for weight, row in weighted]
        out = self._out or sys.stdout
        try:
            out.write("".join(f"{line}\n" for line in lines))
            out.flush()
        except (OSError, ValueError) as error:
            raise StoreFailed(store=self._name, why=str(error)) from error
        self._save(mark)

    def _save(self, mark: Mark) -> None:
        written = self._path.with_name(f"{self._path.name}.new")
        written.write_text(json.dumps({"version": self._served.version, "mark": str(mark)}))
        written.replace(self._path)

    def clear(self) -> None:
        self.mark()
        self._save(NOTHING)

    def close(self) -> None:
        """Standard output stays open."""

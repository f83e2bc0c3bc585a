"""A shop that is served without Spark: clicks, and a view of them whose batches are made by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from fastapi import FastAPI

import headwater as hw
from headwater.console import mount_pages
from headwater.log import Position, Progress, Topic, TopicSpec
from headwater.log.coverage import Made
from headwater.log.splitting import split
from headwater.records import schema_of
from headwater.serve.access import Access
from headwater.serve.follower import Follower
from headwater.serve.http import make_api
from headwater.serve.server import Server
from headwater.serve.stores.sqlite import SqliteStore
from headwater.serve.view import Source, View, ViewSpec

COLUMNS = pa.schema([("page", pa.string()), ("views", pa.int64())])
PRODUCER = "by_page@1"


class OneVersion:
    """The only version of the view is the one made by hand."""

    made = Made("by_page", 1, "by_page", PRODUCER, ("clicks",))

    def current(self, view: str) -> Made | None:
        return self.made

    def version(self, view: str, number: int) -> Made | None:
        return self.made if number == 1 else None

    def made_by(self, topic: str) -> Made | None:
        return self.made if topic == "by_page" else None


class Shop:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = hw.open(f"file:{folder}")
        spec = TopicSpec(
            "clicks",
            schema_of({"user_id": "int64", "page": "string", "at": "timestamp"}),
            key=("user_id",),
            time="at",
            partitions=2,
        )
        self.clicks = Topic(self.log, self.log.create(spec))
        self.log.create(TopicSpec("by_page", COLUMNS, key=("page",), kind="table", partitions=2))
        store = SqliteStore(folder / "by_page.db", COLUMNS, ("page",))
        self.view = View(
            ViewSpec(
                "by_page", "SELECT page, count(*) AS views FROM clicks GROUP BY page", COLUMNS, ("page",), ("clicks",)
            ),
            lambda: store,
            Source(self.log, OneVersion(), lambda made: store),
        )
        self._follower = Follower(self.log, "by_page", PRODUCER, store)
        self._producer = self.log.begin(PRODUCER)
        self._counts: Counter[str] = Counter()
        covered = self.log.covered(PRODUCER)
        self._end = covered.progress.end if covered else Position()
        self._sequence = covered.sequence + 1 if covered else 0
        for row in self.clicks.read(Position(), self._end).to_pylist():
            self._counts[row["page"]] += 1

    @property
    def access(self) -> Access:
        return Access(self.folder)

    def api(self, **more: Any) -> FastAPI:
        api = make_api({"clicks": self.clicks}, {"by_page": self.view}, log=self.log, **more)
        mount_pages(api)
        return api

    def server(self, address: str = "127.0.0.1:0", *, access: Access | None = None, **more: Any) -> Server:
        server = Server(self.api(access=access, **more), address, access=access)
        server.start()
        return server

    def count(self) -> Position:
        """One batch of the view's pipeline, up to the end of the clicks; and its store follows."""
        end = self.clicks.end()
        new = Counter(row["page"] for row in self.clicks.read(self._end, end).to_pylist())
        rows = []
        for page, more in new.items():
            if self._counts[page]:
                rows.append({"page": page, "views": self._counts[page], "_weight": -1})
            self._counts[page] += more
            rows.append({"page": page, "views": self._counts[page], "_weight": 1})
        batch = pa.RecordBatch.from_pylist(rows, COLUMNS.append(pa.field("_weight", pa.int64())))
        parts = [self.log.stage("by_page", p, part) for p, part in split(batch, ("page",), 2).items()]
        progress, self._end = Progress(self._end, end), end
        self.log.append(parts, producer=self._producer, sequence=self._sequence, progress=progress)
        self._sequence += 1
        while self._follower.step(self.view.store.mark()) is not None:
            pass
        return end

    def rows(self) -> dict[str, int]:
        return dict(self._counts)

    def close(self) -> None:
        self.view.close()
        self.log.close()


def click(user_id: int = 1, page: str = "/") -> dict[str, Any]:
    return {"user_id": user_id, "page": page, "at": "2026-01-01T00:00:00Z"}

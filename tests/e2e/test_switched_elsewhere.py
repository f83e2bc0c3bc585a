"""A server of its own over a log in which other processes rebuild a view under Spark and switch to the new version:
who reads and who follows goes over, and each answer is of one version and of one position of the clicks."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.client.following import FeedEvent
from headwater.errors import HeadwaterError
from headwater.log import Position
from tests.e2e.running import HEADWATER, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

MORE = 1_000_000
"""What the new version adds to every count: so each row says which version it is of."""
APP = """
import headwater as hw

app = hw.App("shop", log="file:{folder}/log")
app.topic("clicks", {{"user_id": "int64", "page": "string"}}, key="user_id")
app.view("by_page", sql="SELECT page, count(*) + {more} AS n FROM clicks GROUP BY page")
app.view("labels", sql="SELECT page, 'p' || page AS label{column} FROM by_page", key="page")
"""


class Shop:
    """The code as it was and as it is now, over one log, and a server that was started with the old one."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = folder / "old.py", folder / "new.py"
        self.old.write_text(APP.format(folder=folder, more=0, column=""))
        self.new.write_text(APP.format(folder=folder, more=MORE, column=", n"))
        self.url = f"http://127.0.0.1:{free_port()}"
        self._server: subprocess.Popen[bytes] | None = None
        self.clicks = 0

    def headwater(self, *words: str | Path) -> None:
        ran = subprocess.run([HEADWATER, *words], capture_output=True, text=True, check=False, timeout=240)
        assert ran.returncode == 0, ran.stderr

    def serve(self) -> None:
        address = self.url.removeprefix("http://")
        self._server = subprocess.Popen([HEADWATER, "serve", self.old, "--http", address])

    def click(self, client: hw.Client, count: int) -> Position:
        rows = [{"user_id": n % 7, "page": f"/{n % 11}"} for n in range(self.clicks, self.clicks + count)]
        self.clicks += count
        return client.topic("clicks").append(rows)

    def stop(self) -> int:
        assert self._server is not None
        self._server.send_signal(signal.SIGTERM)
        return self._server.wait(30)

    def close(self) -> None:
        if self._server is not None and self._server.poll() is None:
            self._server.kill()
            self._server.wait()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


def version_of(rows: list[dict[str, Any]], position: Position) -> int:
    """Of which version all the rows are; they are neither mixed, nor of another position than they say."""
    versions = {2 if row["n"] >= MORE else 1 for row in rows}
    assert len(versions) == 1, f"rows of several versions: {rows}"
    assert sum(row["n"] % MORE for row in rows) == position.total, "the rows are not those of their position"
    return versions.pop()


class Watching(threading.Thread):
    """Does something until it is told to end; what it finds wrong is raised where it is waited for."""

    def __init__(self, act: Callable[[Watching], None]) -> None:
        super().__init__(daemon=True)
        self._act = act
        self._wrong: BaseException | None = None
        self.ended = threading.Event()
        self.versions: list[int] = []
        self.position = Position()
        self.start()

    def run(self) -> None:
        try:
            self._act(self)
        except BaseException as error:  # noqa: BLE001  (handed to the test's own thread)
            self._wrong = None if self.ended.is_set() else error

    def saw(self, version: int, position: Position) -> None:
        assert not self.versions or version >= self.versions[-1], "back to the old version"
        assert position.covers(self.position), "back in time"
        self.versions.append(version)
        self.position = position

    def has(self, version: int, position: Position) -> bool:
        if self._wrong is not None:
            raise self._wrong
        return bool(self.versions) and self.versions[-1] == version and self.position.covers(position)


def reader(url: str) -> Callable[[Watching], None]:
    def read(watching: Watching) -> None:
        while not watching.ended.wait(0.05):  # all the time, and the machine has other things to do
            with urllib.request.urlopen(f"{url}/views/by_page", timeout=30) as answer:
                told = json.load(answer)
            position = Position.parse(told["position"])
            watching.saw(version_of(told["rows"], position), position)

    return read


class Follower:
    """Adds up what it is told."""

    def __init__(self, client: hw.Client) -> None:
        self._client = client
        self.told: list[FeedEvent] = []
        self.rows: Counter[tuple[str, int]] = Counter()

    def follow(self, watching: Watching) -> None:
        for each in self._client.view("by_page").changes():
            self.told.append(each)
            for row in each.rows:
                self.rows[row["page"], row["n"]] += row["_weight"]
            assert set(self.rows.values()) <= {0, 1}, "told twice, or taken away before it was there"
            shown = [{"page": page, "n": n} for (page, n), times in self.rows.items() if times]
            assert each.position is not None
            watching.saw(version_of(shown, each.position), each.position)


class Labels:
    """Follows a view of which the new version has one more column."""

    def __init__(self, client: hw.Client) -> None:
        self._client = client
        self.kinds: list[str] = []
        self.rows: Counter[tuple[tuple[str, Any], ...]] = Counter()

    def follow(self, watching: Watching) -> None:
        version = 1
        for each in self._client.view("labels").changes():
            self.kinds.append(each.kind)
            if each.kind == "version":
                assert each.columns == {"page": "string", "label": "string", "n": "int64"}
                version = 2
                continue
            if each.kind == "state":
                self.rows.clear()
            for row in each.rows:
                weight = row.pop("_weight")
                assert set(row) == ({"page", "label"} if version == 1 else {"page", "label", "n"})
                self.rows[tuple(row.items())] += weight
            assert set(self.rows.values()) <= {0, 1}
            assert each.position is not None
            watching.saw(version, each.position.only(["clicks"]))  # it also says that of by_page, then of by_page.v2


def test_readers_and_feeds_of_another_process_go_over_to_the_new_version(
    shop: Shop, until: Callable[..., None]
) -> None:
    shop.serve()
    with hw.Client(shop.url) as client:
        until(lambda: answers(client), what="the server")
        first = shop.click(client, 100)
        shop.headwater("run", shop.old, "--caught-up", "--http", "off")
        follower = Follower(client)
        labels = Labels(client)
        watching = [Watching(reader(shop.url)), Watching(follower.follow), Watching(labels.follow)]
        until(lambda: all(each.has(1, first) for each in watching), what="the old version")

        before = shop.click(client, 50)
        shop.headwater("view", "rebuild", "by_page", "--app", shop.new, "--switch")
        until(lambda: all(each.has(2, before) for each in watching), what="the new version")
        after = shop.click(client, 70)
        shop.headwater("run", shop.new, "--caught-up", "--http", "off")
        until(lambda: all(each.has(2, after) for each in watching), what="what came after the switch")

        for each in watching:
            each.ended.set()
    assert after.total == shop.clicks
    assert [each.kind for each in follower.told].count("state") == 1, "it went on, it did not begin again"
    assert "gap" not in {each.kind for each in follower.told}
    assert len({each.id for each in follower.told}) == len(follower.told)
    assert [kind for kind in labels.kinds if kind != "changes"] == ["state", "version", "state"]
    assert sum(dict(row)["n"] % MORE for row, times in labels.rows.items() if times) == shop.clicks
    assert shop.stop() == 0


def answers(client: hw.Client) -> bool:
    try:
        client.view("by_page").read()
    except HeadwaterError:
        return False
    return True

"""Feeds over real connections that are cut: nothing twice, nothing left out, and a gap is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pytest

import headwater as hw
from headwater.client.following import FeedEvent, Following
from headwater.errors import TooMany
from headwater.log import Position, Topic, TopicSpec
from headwater.log.coverage import Made
from headwater.serve.feed import Feed
from headwater.serve.follower import Follower as Applying
from headwater.serve.http import Limits
from headwater.serve.http.channels import Channel, event
from headwater.serve.http.feeds import Shown, ViewChanges
from headwater.serve.http.pulse import Pulse
from headwater.serve.stores.sqlite import SqliteStore
from headwater.serve.view import Source, View, ViewSpec
from tests.unit.handmade import SCHEMA, HandMade, Versions, clicks
from tests.unit.http_shop import Shop, click

Until = Callable[..., None]


class Follower:
    """Adds up what it is told of a view, in a thread, with a client that resumes."""

    def __init__(self, url: str) -> None:
        self.rows: Counter[tuple[str, int]] = Counter()
        self.told: list[FeedEvent] = []
        self._client = hw.Client(url)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for each in self._client.view("by_page").changes():
                self.take(each)
        except RuntimeError:
            return  # the test is over, the client is closed

    def take(self, told: FeedEvent) -> None:
        self.told.append(told)
        if told.kind == "state":
            self.rows.clear()
        for row in told.rows:
            place = (row["page"], row["views"])
            self.rows[place] += row["_weight"]
            assert self.rows[place] in (0, 1), "a row twice, or taken away before it was there"
            if not self.rows[place]:
                del self.rows[place]

    def has(self, shop: Shop) -> bool:
        return dict(self.rows.keys()) == shop.rows()

    def close(self) -> None:
        self._client.close()


class Proxy:
    """Between a follower and a server, to cut their connections and to lead them to another server."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            host, _, port = self.target.removeprefix("http://").partition(":")
            try:
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, target), daemon=True).start()

    def cut(self) -> None:
        for each in self._open:
            end(each)
        self._open.clear()

    def close(self) -> None:
        self._socket.close()
        self.cut()


def end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    end(target)


def test_a_follower_of_a_view_misses_nothing_through_cuts_and_restarts(
    shop: Shop, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.serve.http.channels.RETRY_MS", 20)
    server = shop.server()
    proxy = Proxy(server.url)
    follower = Follower(proxy.url)
    try:
        until(lambda: follower.told, what="the state")
        for round_ in range(12):
            shop.clicks.append([click(n, f"/{(n * round_) % 5}") for n in range(round_ + 1)])
            shop.count()
            if round_ % 3 == 1:
                proxy.cut()
            if round_ == 5:
                server.stop()
                shop.clicks.append([click(1, "/meanwhile")])
                shop.count()
                server = shop.server()
                proxy.target = server.url
        until(lambda: follower.has(shop), what="the follower to have all rows")
        assert [each.kind for each in follower.told].count("state") == 1, "it was resumed, not begun again"
        assert len({each.id for each in follower.told}) == len(follower.told), "no event twice"
    finally:
        follower.close()
        proxy.close()
        server.stop()


def test_a_follower_of_a_topic_gets_every_record_once_through_cuts(
    shop: Shop, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.serve.http.channels.RETRY_MS", 20)
    server = shop.server(limits=Limits(live_rows=10))
    proxy = Proxy(server.url)
    client = hw.Client(proxy.url)
    seen: list[int] = []

    def follow() -> None:
        try:
            for each in client.topic("clicks").follow("start"):
                assert each.kind == "records"
                seen.extend(row["user_id"] for row in each.rows)
        except RuntimeError:
            return

    threading.Thread(target=follow, daemon=True).start()
    try:
        for number in range(0, 300, 10):
            shop.clicks.append([click(n) for n in range(number, number + 10)])
            if number % 70 == 0:
                proxy.cut()
        until(lambda: len(seen) >= 300, what="all records")
        assert sorted(seen) == list(range(300))
    finally:
        client.close()
        proxy.close()
        server.stop()


def first_events(url: str, count: int, **headers: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    with httpx2.stream("GET", url, headers={name.replace("_", "-"): v for name, v in headers.items()}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        kind = ""
        for line in answer.iter_lines():
            kind = line.removeprefix("event: ") if line.startswith("event: ") else kind
            if line.startswith("data: "):
                found.append((kind, json.loads(line.removeprefix("data: "))))
                if len(found) == count:
                    return found
    raise AssertionError("the feed ended")


def test_history_that_is_gone_is_a_gap_and_not_silence(shop: Shop) -> None:
    shop.clicks.append([click(1)])
    shop.count()
    server = shop.server()
    try:
        told = first_events(f"{server.url}/views/by_page/changes", 2, Last_Event_ID="7.3@by_page.v7:0=1")
        assert [kind for kind, _ in told] == ["gap", "state"]
        assert "version 7" in told[0][1]["why"]
        assert told[1][1]["rows"] == [{"page": "/", "views": 1, "_weight": 1}]
        beyond = first_events(f"{server.url}/topics/clicks/follow", 2, Last_Event_ID="clicks:0=99")
        assert [kind for kind, _ in beyond] == ["gap", "records"]
    finally:
        server.stop()


def test_a_version_with_other_columns_says_them_and_then_all_rows(log: hw.Log) -> None:
    view = HandMade(log)
    versions = Versions(view)
    view.batch(clicks(1), a=1)
    source = ViewChanges(Feed(log, versions, "by_page", SCHEMA))
    (state,) = source.start()
    wider = HandMade(log, version=2, schema=SCHEMA.append(pa.field("more", pa.int64())))
    wider.batch(clicks(1), a=2)
    versions.add(wider)
    versions.switch("by_page", 2)
    following = Following("/x", {}, state.id)
    (piece,) = source.since(state.id)
    version, rows = following.read(piece.text.encode())
    assert (version.kind, version.columns) == ("version", {"page": "string", "n": "int64", "more": "int64"})
    assert (rows.kind, rows.rows) == ("state", [{"page": "a", "n": 2, "more": None, "_weight": 1}])
    assert following.call().headers["Last-Event-ID"] == rows.id == piece.id


def test_who_is_cut_off_between_a_gap_and_the_state_comes_back_for_the_state(log: hw.Log) -> None:
    view = HandMade(log)
    view.batch(clicks(1), a=1)
    source = ViewChanges(Feed(log, Versions(view), "by_page", SCHEMA))
    (piece,) = source.since("7.3@by_page.v7:0=1")
    following = Following("/x", {}, "7.3@by_page.v7:0=1")
    gap = piece.text.index("\n\n") + 2
    assert [each.kind for each in following.read(piece.text[:gap].encode())] == ["gap"]
    assert following.call().headers["Last-Event-ID"] == "7.3@by_page.v7:0=1"


def test_a_page_is_shown_a_new_version_though_it_covers_the_same(log: hw.Log, tmp_path: Path) -> None:
    old, new = HandMade(log), HandMade(log, version=2)
    versions = Versions(old)
    versions.add(new)
    end = Topic(log, log.create(TopicSpec("clicks", SCHEMA, partitions=1))).append([{"page": "a", "n": 1}])
    for each, n in ((old, 1), (new, 2)):
        each.batch(end, a=n)

    def opened(made: Made) -> SqliteStore:
        store = SqliteStore(tmp_path / f"{made.version}.db", SCHEMA, ("page",))
        while Applying(log, made.topic, made.producer, store).step(store.mark()) is not None:
            pass
        return store

    spec = ViewSpec("by_page", "", SCHEMA, ("page",), ("clicks",))
    view = View(spec, lambda: opened(old.made), Source(log, versions, opened))

    async def run() -> list[str]:
        shown = Shown(view, 10)
        seen = []
        async for text in shown.follow():
            if "data: " in text:
                seen.append(text)
                versions.switch("by_page", 2)
            if len(seen) == 2:
                break
        return seen

    first, second = asyncio.run(asyncio.wait_for(run(), 20))
    assert '"n": 1' in first
    assert '"n": 2' in second


def test_records_that_retention_took_are_a_gap(tmp_path: Path) -> None:
    now = [1_000_000_000]
    log = hw.open(f"file:{tmp_path / 'aged'}", clock=lambda: now[0])
    from headwater.log import Settings
    from headwater.records import schema_of
    from headwater.serve.http.feeds import TopicRecords

    spec = TopicSpec("beats", schema_of({"n": "int64"}), partitions=1, settings=Settings(retain_s=10))
    beats = Topic(log, log.create(spec))
    beats.append([{"n": 1}])
    now[0] += 100_000_000
    beats.append([{"n": 2}])
    log.upkeep.run()  # type: ignore[attr-defined]
    source = TopicRecords(log, beats, 100)
    (gap,) = source.since("origin")
    assert "event: gap" in gap.text
    (rest,) = source.since(gap.id)
    assert '"n": 2' in rest.text
    assert source.since(rest.id) == []
    log.close()


def test_followers_that_left_are_not_counted_and_too_many_are_refused(shop: Shop, until: Until) -> None:
    server = shop.server(limits=Limits(followers=2))
    url = f"{server.url}/topics/clicks/follow"

    def open_now() -> str:
        return next(
            line for line in httpx2.get(f"{server.url}/metrics").text.splitlines() if line.startswith("headwater_foll")
        )

    try:
        with httpx2.stream("GET", url), httpx2.stream("GET", url):
            until(lambda: open_now() == "headwater_followers 2.0", what="two followers")
            refused = httpx2.get(url)
            assert (refused.status_code, refused.json()["title"]) == (429, TooMany.__name__)
        until(lambda: open_now() == "headwater_followers 0.0", what="the end of both")
    finally:
        server.stop()


def test_a_page_is_shown_the_rows_again_when_they_change(shop: Shop) -> None:
    shop.clicks.append([click(1)])
    shop.count()
    server = shop.server()
    try:
        later = threading.Timer(0.3, lambda: (shop.clicks.append([click(2)]), shop.count()))
        later.start()
        told = first_events(f"{server.url}/views/by_page/live", 2)
        later.join()
        assert [kind for kind, _ in told] == ["rows", "rows"]
        assert [each["rows"][0]["views"] for _, each in told] == [1, 2]
    finally:
        server.stop()


# --- many followers, one reader ---


class Counting:
    """A source of numbered pieces that counts how often it is read."""

    def __init__(self) -> None:
        self.end = 0
        self.reads = 0

    def start(self) -> list[Any]:
        return [event("begin", str(self.end), "{}")]

    def since(self, place: str) -> list[Any]:
        self.reads += 1
        return [event("n", str(n + 1), str(n)) for n in range(int(place), self.end)]


def test_hundreds_of_followers_cost_one_reader(log: hw.Log) -> None:
    from headwater.records import schema_of

    topic = Topic(log, log.create(TopicSpec("t", schema_of({"n": "int64"}), partitions=1)))
    source = Counting()

    async def run() -> None:
        channel = Channel(source, Pulse(log))
        seen: list[list[int]] = [[] for _ in range(300)]

        async def follow(number: int) -> None:
            async for text in channel.follow("0"):
                if "data: " in text:
                    seen[number].append(int(text.rsplit("data: ", 1)[1]))
                    if len(seen[number]) == 20:
                        return

        tasks = [asyncio.create_task(follow(number)) for number in range(300)]
        for _ in range(20):
            source.end += 1
            await asyncio.to_thread(topic.append, [{"n": 1}])
            await asyncio.sleep(0.03)
        await asyncio.wait_for(asyncio.gather(*tasks), 20)
        assert seen == [list(range(20))] * 300

    asyncio.run(run())
    assert source.reads < 200, "followers took what the one reader had read"


def test_a_follower_too_slow_for_the_ring_still_gets_everything(log: hw.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.records import schema_of

    monkeypatch.setattr("headwater.serve.http.channels.RING", 3)
    topic = Topic(log, log.create(TopicSpec("t", schema_of({"n": "int64"}), partitions=1)))
    source = Counting()

    async def run() -> list[int]:
        channel = Channel(source, Pulse(log))
        slow = channel.follow("0")
        seen: list[int] = []
        await anext(slow)
        for _ in range(50):
            source.end += 1
        await asyncio.to_thread(topic.append, [{"n": 1}])
        async for text in slow:
            if "data: " in text:
                seen.append(int(text.rsplit("data: ", 1)[1]))
                await asyncio.sleep(0.002)
            if len(seen) == 50:
                await slow.aclose()  # type: ignore[attr-defined]
                return seen
        return seen

    assert asyncio.run(run()) == list(range(50))


# --- what bytes say ---


def test_events_cut_anywhere_are_read_whole() -> None:
    data = b'{"position": "a:0=1", "records": [{"n": 1}]}'
    text = b"retry: 20\n\n: hello\n\nid: a:0=1\nevent: records\ndata: " + data + b"\n\n"
    for cut in range(len(text)):
        following = Following("/x", {})
        told = following.read(text[:cut]) + following.read(text[cut:])
        assert told == [FeedEvent("records", [{"n": 1}], Position.parse("a:0=1"), "a:0=1")]
        assert following.call().headers["Last-Event-ID"] == "a:0=1"
        assert following.lost("cut") == 0.02


def test_half_an_event_is_forgotten_when_the_connection_breaks() -> None:
    following = Following("/x", {})
    following.read(b'id: 1.1\nevent: changes\ndata: {"rows": [')
    assert "Last-Event-ID" not in following.call().headers
    assert following.read(b"\n") == []

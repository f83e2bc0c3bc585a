"""StatsD over real sockets on loopback: what is sent is in the topic; what is bad, dropped or lost is counted and
shown."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import headwater as hw
from headwater.capture.feeds.datagrams import Datagrams, bind
from headwater.capture.feeds.spec import FeedSpec, StatsdSettings, feed_of
from headwater.capture.feeds.statsd import StatsdCapture
from headwater.capture.runner import Capturing
from headwater.errors import BadCapture, SourceRefused
from headwater.log import Settings, TopicSpec
from headwater.records import schema_of

URL = "statsd://127.0.0.1:0"
GROUP = "239.255.77.1"


class Listening:
    def __init__(self, log: hw.Log, until: Callable[..., None]) -> None:
        self.log = log
        self.until = until
        self.running: list[Capturing] = []
        self.sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def listen(self, url: str = URL, into: str | hw.Topic = "metrics", **settings: Any) -> StatsdCapture:
        capture = StatsdCapture(FeedSpec("stats", url, into, StatsdSettings(**settings)), self.log)
        capture.topics()
        capturing = Capturing(capture, lambda text: None)
        capturing.start()
        self.running.append(capturing)
        self.until(lambda: capturing.failure or capture.status().phase == "listening")
        if capturing.failure is not None:
            raise capturing.failure
        return capture

    def stop(self) -> None:
        for capturing in self.running:
            capturing.stop()
            if capturing.failure is not None:
                raise capturing.failure

    def send(self, capture: StatsdCapture, *lines: str | bytes) -> None:
        data = b"\n".join(line.encode() if isinstance(line, str) else line for line in lines)
        assert capture.address is not None
        self.sender.sendto(data, capture.address)

    def rows(self, topic: str = "metrics") -> list[dict[str, Any]]:
        return hw.Topic(self.log, self.log.topic(topic)).read().to_pylist()


@pytest.fixture
def statsd(log: hw.Log, until: Callable[..., None]) -> Iterator[Listening]:
    made = Listening(log, until)
    yield made
    made.sender.close()
    made.stop()


def test_metrics_that_are_sent_are_records(statsd: Listening) -> None:
    capture = statsd.listen()
    statsd.send(
        capture, "hits:1|c|@0.5|#page:/a,new", "load:0.7|g", "load:-1|g", "wait:3:4|ms", "who:anna|s|T1700000000"
    )
    statsd.until(lambda: len(statsd.rows()) == 6)
    rows = sorted(statsd.rows(), key=lambda row: (row["name"], row["kind"], row["value"] or 0))
    told = [(row["name"], row["kind"], row["value"], row["member"], row["rate"], dict(row["tags"])) for row in rows]
    assert told == [
        ("hits", "counter", 1.0, None, 0.5, {"page": "/a", "new": ""}),
        ("load", "gauge", 0.7, None, 1.0, {}),
        ("load", "gauge_delta", -1.0, None, 1.0, {}),
        ("wait", "timer", 3.0, None, 1.0, {}),
        ("wait", "timer", 4.0, None, 1.0, {}),
        ("who", "set", None, "anna", 1.0, {}),
    ]
    assert rows[-1]["at"].timestamp() == 1_700_000_000


def test_bad_lines_are_counted_and_the_last_is_shown_while_good_ones_go_on(statsd: Listening) -> None:
    capture = statsd.listen()
    statsd.send(capture, "hits:1|c", "nonsense", b"\xff:1|c", "", "hits:x|c", "hits:2|c\r")
    statsd.until(lambda: len(statsd.rows()) == 2)
    status = capture.status()
    assert (status.rows, status.bad, status.dropped, status.when_slow) == (2, 3, 0, "drop_newest")
    assert status.alert == "bad line: 'hits:x|c': the value 'x' is not a number"


def test_counts_go_on_with_the_next_run(statsd: Listening) -> None:
    capture = statsd.listen()
    statsd.send(capture, "hits:1|c", "bad")
    statsd.until(lambda: capture.status().bad == 1 and len(statsd.rows()) == 1)
    statsd.stop()
    again = statsd.listen()
    statsd.send(again, "hits:2|c", "bad")
    statsd.until(lambda: len(statsd.rows()) == 2)
    assert (again.status().bad, again.status().position, again.status().rows) == (2, "2 lines", 1)


def test_what_came_before_the_stop_is_appended(statsd: Listening) -> None:
    capture = statsd.listen(flush_s=30.0)
    statsd.send(capture, "first:1|c")
    statsd.until(lambda: len(statsd.rows()) == 1)
    for number in range(20):
        statsd.send(capture, f"hits:{number}|c")
    statsd.until(lambda: capture.goal() == 21)
    statsd.stop()
    assert len(statsd.rows()) == 21


@pytest.mark.parametrize(("when_slow", "kept"), [("drop_newest", range(100)), ("drop_oldest", range(400, 500))])
def test_past_the_buffer_lines_are_dropped_and_counted(when_slow: Any, kept: range, until: Callable[..., None]) -> None:
    with bind(URL, anybody=False) as bound, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        datagrams = Datagrams(bound, StatsdSettings(when_slow=when_slow, buffer_bytes=1000), url=URL)
        datagrams.start()
        for number in range(500):
            sender.sendto(b"%03d:100|c\n" % number, bound.getsockname())
            if number % 50 == 49:
                until(lambda number=number: datagrams.received == number + 1)
        datagrams.stop()
        taken = datagrams.take(timeout_s=0)
    assert [int(each[:3]) for each in taken] == list(kept)
    assert datagrams.dropped_lines == 400


def test_what_the_kernel_dropped_is_counted(until: Callable[..., None]) -> None:
    with bind(URL, anybody=False) as bound, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(200):  # nobody receives yet
            sender.sendto(b"x" * 100, bound.getsockname())
        datagrams = Datagrams(bound, StatsdSettings(), url=URL)
        datagrams.start()
        until(lambda: sender.sendto(b"more", bound.getsockname()) and datagrams.lost > 0)
        datagrams.stop()
    assert datagrams.lost <= 200


def test_a_full_topic_that_blocks_holds_the_appends_up_and_says_so(statsd: Listening) -> None:
    bounded = TopicSpec(
        "metrics", schema_of({"name": "string", "value": "float64"}), settings=Settings(most_rows=3, when_full="block")
    )
    topic = hw.Topic(statsd.log, statsd.log.create(bounded))
    capture = statsd.listen(into=topic)
    for number in range(5):
        statsd.send(capture, f"hits:{number}|c")
        statsd.until(lambda: capture.status().waiting or capture.reached(capture.goal()))
    statsd.until(lambda: "metrics" in capture.status().waiting)
    assert len(statsd.rows()) <= 3
    topic.alter(settings=Settings(most_rows=100, when_full="block"))
    statsd.until(lambda: len(statsd.rows()) == 5)
    statsd.until(lambda: capture.status().waiting == "")


def test_a_multicast_group_is_joined(statsd: Listening) -> None:
    capture = statsd.listen(f"statsd://{GROUP}:0?interface=127.0.0.1")
    statsd.sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    statsd.send(capture, "hits:1|c")
    statsd.until(lambda: len(statsd.rows()) == 1)
    assert capture.address is not None
    assert capture.address[0] == GROUP


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("statsd://127.0.0.1", "is no address to listen on"),
        ("statsd://somewhere:8125", "is no address to listen on"),
        ("statsd://127.0.0.1:99999", "is no address to listen on"),
        ("statsd://127.0.0.1:1?other=1", "is no address to listen on"),
        ("statsd://[ff02::1]:8125", "is no address to listen on"),
        ("statsd://0.0.0.0:8125", "UDP does not say who sends"),
        (f"statsd://{GROUP}:8125", "UDP does not say who sends"),
    ],
)
def test_an_address_that_cannot_be_or_that_strangers_reach_is_refused(url: str, told: str) -> None:
    with pytest.raises(BadCapture) as refused:
        bind(url, anybody=False)
    assert told in str(refused.value)


def test_strangers_are_let_in_when_that_is_said_and_a_taken_port_is_told() -> None:
    with bind("statsd://0.0.0.0:0", anybody=True) as bound:
        port = bound.getsockname()[1]
        with pytest.raises(SourceRefused, match="cannot listen: Address already in use"):
            bind(f"statsd://127.0.0.1:{port}", anybody=False)
    with bind("statsd://[::1]:0", anybody=False) as bound:
        assert bound.family == socket.AF_INET6


def test_udp_cannot_block_and_says_so() -> None:
    with pytest.raises(BadCapture, match="UDP cannot block"):
        StatsdSettings(when_slow="block")
    with pytest.raises(BadCapture, match="buffer_bytes is 0"):
        StatsdSettings(buffer_bytes=0)
    with pytest.raises(BadCapture, match="has no topic"):
        feed_of("stats", URL, None, None)


def test_a_topic_that_metrics_cannot_fill_is_refused_when_it_is_declared(statsd: Listening) -> None:
    for columns, told in (({"host": "string"}, "no column 'name'"), ({"name": "string", "host": "string"}, "'host'")):
        spec = TopicSpec(f"topic{len(columns)}", schema_of(columns), key=("host",))
        with pytest.raises(BadCapture, match=told):
            statsd.listen(into=hw.Topic(statsd.log, statsd.log.create(spec)))


def test_an_app_captures_metrics_into_a_topic(log: hw.Log, until: Callable[..., None]) -> None:
    with hw.App("shop", log=log.url) as app:
        metrics = app.capture(URL, into="metrics")["metrics"]
        thread = threading.Thread(target=app.run, kwargs={"only": "captures"})
        thread.start()
        capture: Any = app._running.captures._declared["shop"]
        until(lambda: capture.address is not None)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"hits:1|c", capture.address)
        until(lambda: metrics.read().num_rows == 1)
        app.stop()
        thread.join()
        with pytest.raises(BadCapture, match="has no tables"):
            app.capture(URL, tables=["a"], name="other")
        with pytest.raises(BadCapture, match="into= is for statsd: and tail:"):
            app.capture("sqlite:x.db", tables=["a"], into="b", name="other")
        with pytest.raises(BadCapture, match="settings of another kind: TailSettings"):
            app.capture(URL, into="b", name="other", settings=hw.TailSettings())

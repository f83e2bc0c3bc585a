"""Webhooks: signed as the standard's own library checks it, on its schedule, and never into our own network."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from standardwebhooks import Webhook as Checker
from standardwebhooks import WebhookVerificationError
from typer.testing import CliRunner

from headwater.errors import AddressRefused, BadStore, StoreFailed, UsageError
from headwater.serve.stores import Webhook, addresses, new_secret
from headwater.serve.stores.addresses import Allowed
from headwater.serve.stores.outbox import JITTER, SCHEDULE_S, SECOND, Answer, Outbox
from headwater.serve.stores.webhook import WebhookMessenger
from headwater.testing.stores_contract import SERVED, changes, mark, row

SECRET = new_secret()
LOCAL = Allowed(private=True, http=True)


class Receiver:
    """A server that answers as it is told, and remembers what it got."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outbox(receiver: Receiver, clock: Clock, tmp_path: Path) -> Iterator[Outbox]:
    messenger = WebhookMessenger(f"http://localhost:{receiver.port}/in?x=1", [SECRET], name="hook", allowed=LOCAL)
    made = Outbox(tmp_path / "o", SERVED, messenger, name="hook", clock=clock, jitter=lambda: 0.0)
    yield made
    made.close()


def test_the_standards_library_accepts_what_is_sent_and_refuses_what_was_altered(
    receiver: Receiver, outbox: Outbox, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    clock.now = time.time_ns() // 1000
    outbox.apply(changes(row("/ä", 1)), mark(1))
    assert outbox.deliver() is None
    ((path, headers, body),) = receiver.got
    assert path == "/in?x=1"
    assert headers["host"] == f"localhost:{receiver.port}"
    assert headers["content-type"] == "application/json"
    told = Checker(SECRET).verify(body, headers)
    assert told["data"]["changes"] == [{"weight": 1, "row": {"page": "/ä", "n": 1}}]
    with pytest.raises(WebhookVerificationError):
        Checker(SECRET).verify(body + b" ", headers)
    with pytest.raises(WebhookVerificationError):
        Checker(new_secret()).verify(body, headers)


def test_while_a_secret_changes_both_are_accepted(receiver: Receiver) -> None:
    import time

    old, new = new_secret(), new_secret()
    url = f"http://127.0.0.1:{receiver.port}/"
    messenger = WebhookMessenger(url, [new, old], name="hook", allowed=LOCAL)
    assert messenger.send("msg_1", b"{}", time.time_ns() // 1000).kind == "sent"
    _, headers, body = receiver.got[0]
    assert headers["webhook-signature"].count("v1,") == 2
    Checker(old).verify(body, headers)
    Checker(new).verify(body, headers)


def test_a_message_is_tried_on_the_standards_schedule_under_one_id_then_listed_and_replayed(
    receiver: Receiver, outbox: Outbox, clock: Clock
) -> None:
    receiver.answers = [(500, {})] * len(SCHEDULE_S)
    outbox.apply(changes(row("/a", 1)), mark(1))
    begun, tried = clock.now, []
    due = outbox.deliver()
    tried.append(clock.now)
    while due is not None:
        clock.now = due - 1
        assert outbox.deliver() == due, "not before its time"
        clock.now = due
        tried.append(due)
        due = outbox.deliver()
    apart = [(later - earlier) / SECOND for earlier, later in zip([begun, *tried], tried, strict=False)]
    assert apart == [0, 5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600]
    assert len({headers["webhook-id"] for _, headers, _ in receiver.got}) == 1
    assert [int(headers["webhook-timestamp"]) for _, headers, _ in receiver.got] == [each // SECOND for each in tried]
    (failed,) = outbox.failures()
    assert (failed.tries, failed.said) == (10, "the receiver answered 500")
    assert "1 messages failed" in outbox.trouble()
    outbox.replay(failed.message_id)
    clock.now += 300 * SECOND
    assert outbox.deliver() is None
    assert receiver.got[-1][1]["webhook-id"] == failed.message_id
    assert outbox.failures() == []
    with pytest.raises(UsageError, match="no message 'msg_x' has failed"):
        outbox.replay("msg_x")


def test_tries_are_spread_a_little(receiver: Receiver, clock: Clock, tmp_path: Path) -> None:
    messenger = WebhookMessenger(f"http://127.0.0.1:{receiver.port}/", [SECRET], name="hook", allowed=LOCAL)
    outbox = Outbox(tmp_path / "o", SERVED, messenger, name="hook", clock=clock, jitter=lambda: 1.0)
    receiver.answers = [(500, {})]
    outbox.apply(changes(row("/a", 1)), mark(1))
    assert outbox.deliver() == clock.now + int(5 * (1 + JITTER) * SECOND)
    outbox.close()


@pytest.mark.parametrize("status", [301, 302, 307, 400, 404, 500, 503])
def test_whatever_is_not_2xx_is_a_failure_redirects_too(receiver: Receiver, outbox: Outbox, status: int) -> None:
    receiver.answers = [(status, {"location": f"http://127.0.0.1:{receiver.port}/other"})]
    outbox.apply(changes(row("/a", 1)), mark(1))
    assert outbox.deliver() is not None
    assert [path for path, _, _ in receiver.got] == ["/in?x=1"], "no redirect is followed"
    assert outbox.waiting()[0].said == f"the receiver answered {status}"


def test_410_disables_until_it_is_enabled_by_hand(receiver: Receiver, outbox: Outbox, clock: Clock) -> None:
    receiver.answers = [(410, {})]
    outbox.apply(changes(row("/a", 1)), mark(1))
    assert outbox.deliver() is None
    clock.now += 10 * 86400 * SECOND
    assert outbox.deliver() is None
    assert len(receiver.got) == 1
    with pytest.raises(StoreFailed, match="it is disabled: the receiver answered 410, gone"):
        outbox.apply(changes(row("/b", 1)), mark(2))
    assert outbox.mark() == mark(1)
    outbox.enable()
    outbox.apply(changes(row("/b", 1)), mark(2), after=mark(1))
    assert outbox.deliver() is None
    assert len(receiver.got) == 3


@pytest.mark.parametrize("status", [429, 502, 504])
def test_a_receiver_that_has_enough_is_left_alone_as_long_as_it_says(
    receiver: Receiver, outbox: Outbox, clock: Clock, status: int
) -> None:
    receiver.answers = [(status, {"retry-after": "120"})]
    outbox.apply(changes(row("/a", 1)), mark(1))
    assert outbox.deliver() == clock.now + 120 * SECOND
    outbox.apply(changes(row("/b", 1)), mark(2))
    assert outbox.deliver() == clock.now + 120 * SECOND, "nor is anything else sent"
    assert len(receiver.got) == 1
    clock.now += 120 * SECOND
    assert outbox.deliver() is None
    assert len(receiver.got) == 3


def test_retry_after_may_be_a_date(receiver: Receiver, outbox: Outbox, clock: Clock) -> None:
    from email.utils import formatdate

    receiver.answers = [(429, {"retry-after": formatdate(clock.now / SECOND + 90, usegmt=True)})]
    outbox.apply(changes(row("/a", 1)), mark(1))
    assert outbox.deliver() == clock.now + 90 * SECOND


def test_a_receiver_that_is_down_is_not_called_for_each_message(
    receiver: Receiver, outbox: Outbox, clock: Clock
) -> None:
    receiver.answers = [(500, {})] * 3
    for number in range(1, 50):
        outbox.apply(changes(row(f"/{number}", 1)), mark(number))
    outbox.deliver()
    assert len(receiver.got) == 1
    clock.now += 5 * SECOND
    outbox.deliver()
    assert len(receiver.got) == 2


def test_a_server_that_answers_a_byte_at_a_time_is_given_up(tmp_path: Path) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def drip() -> None:
        taken, _ = listening.accept()
        with taken:
            while not ended.wait(0.02):
                try:
                    taken.sendall(b"H")
                except OSError:
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    messenger = WebhookMessenger(url, [SECRET], name="hook", allowed=LOCAL, timeout_s=0.3)
    assert messenger.send("msg_1", b"{}", 0).kind == "failed"
    ended.set()
    thread.join()
    listening.close()


def test_over_tls_the_certificate_is_that_of_the_name(receiver: Receiver, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    receiver.server.socket = context.wrap_socket(receiver.server.socket, server_side=True)
    trusted = {"allowed": Allowed(private=True), "ca_file": str(tmp_path / "ca.pem")}
    here = WebhookMessenger(f"https://localhost:{receiver.port}/", [SECRET], name="hook", **trusted)  # type: ignore[arg-type]
    assert here.send("msg_1", b"{}", 0).kind == "sent"
    other = WebhookMessenger(f"https://127.0.0.1:{receiver.port}/", [SECRET], name="hook", **trusted)  # type: ignore[arg-type]
    assert other.send("msg_1", b"{}", 0).kind == "failed", "another name than the certificate's"


# --- where nothing is sent ---

INNER = [
    "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "fd12::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INNER)
def test_an_address_inside_of_a_network_is_refused_when_it_is_declared(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(AddressRefused, match="inside of a network"):
        Webhook(f"https://{host}/hook", SECRET)
    assert Webhook(f"https://{host}/hook", SECRET, allow_private=True).name.startswith("https://")


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111"])
def test_an_address_outside_is_not(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert Webhook(f"https://{host}/hook", SECRET)


def found(*texts: str) -> Callable[..., list[tuple[Any, ...]]]:
    return lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (text, 443)) for text in texts]


@pytest.mark.parametrize(
    "resolved", [("127.0.0.1",), ("93.184.216.34", "10.0.0.1"), ("169.254.169.254",), ("::ffff:192.168.0.1",)]
)
def test_a_name_of_which_any_address_is_inside_is_not_called(
    resolved: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses.socket, "getaddrinfo", found(*resolved))
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("it was called"))
    messenger = WebhookMessenger("https://hooks.example.org/", [SECRET], name="hook", allowed=Allowed())
    assert "inside of a network" in messenger.send("msg_1", b"{}", 0).said


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "017700000001", "localhost"])
def test_other_ways_to_write_a_loopback_address_gain_nothing(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("it was called"))
    messenger = WebhookMessenger(f"https://{host}/", [SECRET], name="hook", allowed=Allowed())
    assert messenger.send("msg_1", b"{}", 0).kind == "failed"


def test_a_name_is_resolved_once_and_that_address_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is outside when it is checked, and inside when it is called."""
    answers = [found("93.184.216.34"), found("127.0.0.1")]
    asked, called = [], []

    def resolve(*given: Any, **named: Any) -> list[tuple[Any, ...]]:
        asked.append(given)
        return answers[len(asked) - 1]()

    def connect(where: tuple[str, int], **_: Any) -> socket.socket:
        called.append(where)
        raise OSError("no network here")

    monkeypatch.setattr(addresses.socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    messenger = WebhookMessenger("https://hooks.example.org/", [SECRET], name="hook", allowed=Allowed())
    assert messenger.send("msg_1", b"{}", 0).kind == "failed"
    assert (len(asked), called) == (1, [("93.184.216.34", 443)])


def test_a_name_that_does_not_resolve_is_a_failure_and_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(addresses.socket, "getaddrinfo", unknown)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("it was called"))
    messenger = WebhookMessenger("https://hooks.example.org/", [SECRET], name="hook", allowed=Allowed())
    assert messenger.send("msg_1", b"{}", 0) == Answer("failed", "gaierror: Name or service not known")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.org/", "it is not https"),
        ("file:///etc/passwd", "it is not https"),
        ("https://user:hunter2@example.org/", "it has a user or password in it"),
        ("https:///path", "it names no host"),
    ],
)
def test_addresses_that_cannot_be_meant(url: str, why: str) -> None:
    with pytest.raises(AddressRefused, match=why) as refused:
        Webhook(url, SECRET)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("secret", ["", "hunter2", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!!", "c2hvcnQ" * 8])
def test_a_secret_that_is_none_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(BadStore, match="24 to 64 bytes") as refused:
        Webhook("https://example.org/", secret)
    assert not secret.removeprefix("whsec_") or secret.removeprefix("whsec_") not in str(refused.value)


def test_neither_path_nor_secret_is_ever_shown() -> None:
    made = Webhook("https://hooks.example.org/services/T0KEN", SECRET)
    assert made.name.startswith("https://hooks.example.org/#")
    for told in (made.name, repr(made), json.dumps(str(made))):
        assert "T0KEN" not in told
        assert SECRET[6:] not in told


def test_by_the_command_failures_are_listed_sent_again_and_the_receiver_enabled(
    receiver: Receiver, clock: Clock, tmp_path: Path
) -> None:
    import headwater as hw
    from headwater.cli.main import cli

    hw.open(f"file:{tmp_path}").close()
    messenger = WebhookMessenger(f"http://127.0.0.1:{receiver.port}/", [SECRET], name="hook", allowed=LOCAL)
    (tmp_path / "stores").mkdir()
    path = tmp_path / "stores" / "by_page.x.outbox"
    outbox = Outbox(path, SERVED, messenger, name="http://h/#1", clock=clock, jitter=lambda: 0.0)
    assert path.stat().st_mode & 0o77 == 0, "nobody else reads it"
    receiver.answers = [(500, {})] * len(SCHEDULE_S) + [(410, {})]
    outbox.apply(changes(row("/a", 1)), mark(1))
    while (due := outbox.deliver()) is not None:
        clock.now = due

    def told(*words: str) -> Any:
        ran = CliRunner().invoke(cli, ["outbox", *words, "--log", f"file:{tmp_path}", "--json"])
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.output)

    (listed,) = told("list")
    assert (listed["name"], listed["view"], listed["store"], listed["failed"]) == (
        "by_page.x", "by_page", "http://h/#1", 1,
    )  # fmt: skip
    (failed,) = told("failed", "by_page.x")
    assert (failed["tries"], failed["said"]) == (10, "the receiver answered 500")
    assert told("replay", "by_page.x") == [{"message": failed["message"], "state": "waiting"}]
    clock.now += 86400 * SECOND
    outbox.deliver()
    assert "410" in told("list")[0]["trouble"]
    told("enable", "by_page.x")
    clock.now += 86400 * SECOND
    assert outbox.deliver() is None
    assert told("waiting", "by_page.x") == []
    assert CliRunner().invoke(cli, ["outbox", "failed", "x", "--log", f"file:{tmp_path}"]).exception is not None
    outbox.close()

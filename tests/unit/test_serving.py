"""Several stores of one view: each at its own pace, a dead one tried again and shown, none holding another back."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import BadStore, StoreAstray, StoreFailed, StoreTaken, UsageError
from headwater.log import Position, Topic, TopicSpec
from headwater.log.embedded.backup import backup, restore
from headwater.serve import serving
from headwater.serve.astray import refuse_astray
from headwater.serve.store import Mark, Served, Target
from headwater.serve.stores import DuckDB, Email, Parquet, Postgres, Redis, Search, Stdout, Webhook, new_secret
from headwater.serve.stores.destinations import Destination, destination
from headwater.serve.stores.secrets import without
from headwater.serve.stores.sqlite import SqliteStore
from headwater.serve.view import View, ViewSpec
from headwater.testing.stores_contract import changes, mark, row
from tests.unit.test_follower import SCHEMA, Pipeline

SERVED_KEY = ("page",)


@dataclass(frozen=True)
class Broken(Destination):
    """A store in a file that fails as long as `failing` is set."""

    path: Path = Path()
    failing: threading.Event = field(default_factory=threading.Event)
    error: Exception = field(default_factory=lambda: StoreFailed(store="broken:", why="it is down"))

    @property
    def name(self) -> str:
        return f"broken:{self.path.name}"

    def open(self, served: Served) -> Target:
        destination = self

        class Store(SqliteStore):
            def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
                if destination.failing.is_set():
                    raise destination.error
                super().apply(changes, mark, after=after)

        if self.failing.is_set():
            raise self.error
        return Store(self.path, served.schema, served.key)


@pytest.fixture
def pipeline(log: hw.Log) -> Pipeline:
    return Pipeline(log)


@pytest.fixture
def view(tmp_path: Path) -> View:
    spec = ViewSpec("by_page", "SELECT ...", SCHEMA, SERVED_KEY, ("clicks",))
    return View(spec, lambda to=None: SqliteStore(tmp_path / "own.db", SCHEMA, SERVED_KEY))


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served("by_page", "by_page@1", SCHEMA, SERVED_KEY, tmp_path / "stores")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "AGAIN_S", (0.02,))


def rows_in(path: Path) -> dict[str, int]:
    store = SqliteStore(path, SCHEMA, SERVED_KEY)
    try:
        return {row["page"]: row["n"] for row in store.read()[0].to_pylist()}
    finally:
        store.close()


def test_a_dead_store_is_shown_and_tried_again_and_holds_nobody_back(
    log: hw.Log, pipeline: Pipeline, view: View, served: Served, tmp_path: Path, until: Callable[..., None]
) -> None:
    dead, well = Broken(path=tmp_path / "dead.db"), Broken(path=tmp_path / "well.db")
    dead.failing.set()
    view.serve(to=[dead, well])
    running = serving.served_view(log, "by_page", "by_page@1", view, served)
    running.start()
    try:
        end = pipeline.batch(a=1, b=2)
        view.wait(end)
        until(lambda: running.statuses()[1].lag == 0, what="the other store")
        until(lambda: running.statuses()[0].failure, what="the failure")
        status = running.statuses()[0]
        assert status.name == "by_page -> broken:dead.db"
        assert (status.lag, "it is down" in status.failure) == (None, True)
        assert status.behind_s > 0
        assert running.settled(), "nobody waits for it"
        assert running.failure is None, "nor does the app end"
        dead.failing.clear()
        until(lambda: running.statuses()[0].lag == 0 and not running.statuses()[0].failure, what="its return")
    finally:
        running.stop()
    assert rows_in(tmp_path / "dead.db") == rows_in(tmp_path / "well.db") == {"a": 1, "b": 2}


def test_an_error_of_any_kind_is_told_by_its_name_only_and_tried_again(
    log: hw.Log, pipeline: Pipeline, view: View, served: Served, tmp_path: Path, until: Callable[..., None]
) -> None:
    odd = Broken(path=tmp_path / "odd.db", error=ValueError("password=hunter2"))
    odd.failing.set()
    view.serve(to=odd)
    running = serving.served_view(log, "by_page", "by_page@1", view, served)
    running.start()
    try:
        until(lambda: running.statuses()[0].failure, what="the failure")
        assert running.statuses()[0].failure.startswith("broken:odd.db: ValueError.")
        odd.failing.clear()
        pipeline.batch(a=1)
        until(lambda: running.statuses()[0].lag == 0 and not running.statuses()[0].failure, what="its return")
    finally:
        running.stop()


def test_a_store_that_was_taken_over_by_another_version_is_left_to_it(
    log: hw.Log, pipeline: Pipeline, view: View, served: Served, tmp_path: Path, until: Callable[..., None]
) -> None:
    taken = Broken(path=tmp_path / "t.db", error=StoreTaken(store="broken:", by="by_page@2"))
    view.serve(to=taken)
    running = serving.served_view(log, "by_page", "by_page@1", view, served)
    running.start()
    try:
        taken.failing.set()
        pipeline.batch(a=1)
        until(lambda: "holds the rows of by_page@2" in running.statuses()[0].failure, what="the failure")
        taken.failing.clear()
        end = pipeline.batch(a=2)
        view.wait(end)
        assert rows_in(tmp_path / "t.db") == {}
    finally:
        running.stop()


def test_upkeep_leaves_what_the_slowest_store_has_yet_to_apply_and_not_for_ever(
    log: hw.Log, pipeline: Pipeline, view: View, served: Served, tmp_path: Path, until: Callable[..., None]
) -> None:
    slow = Broken(path=tmp_path / "slow.db", hold_rows=100)
    view.serve(to=slow)
    pipeline.batch(a=0)
    running = serving.served_view(log, "by_page", "by_page@1", view, served)
    running.start()
    try:
        until(lambda: running.statuses()[0].lag == 0, what="the first rows")
        slow.failing.set()
        for n in range(1, 20):
            end = pipeline.batch(a=n, b=n)
        view.wait(end)
        running.pin()
        compacted = log.upkeep.compact("by_page")  # type: ignore[attr-defined]
        assert all(horizon <= 1 for horizon in compacted.values()), "not past what it has yet to apply"
        assert running.statuses()[0].alert == ""
        for n in range(20, 60):
            end = pipeline.batch(a=n, b=n)
        view.wait(end)
        assert "more than 100 records behind" in running.statuses()[0].alert
        running.pin()
        horizons = log.upkeep.compact("by_page")  # type: ignore[attr-defined]
        assert max(horizons.values()) > 20, "the log no longer grows for it"
        slow.failing.clear()
        until(lambda: running.statuses()[0].lag == 0 and not running.statuses()[0].failure, what="its return")
    finally:
        running.stop()
    assert rows_in(tmp_path / "slow.db") == {"a": 59, "b": 59}


def test_lines_and_a_full_text_index_beside_the_views_own_store(
    log: hw.Log, pipeline: Pipeline, view: View, served: Served, until: Callable[..., None]
) -> None:
    out = io.StringIO()
    view.serve(to=Stdout(out=out)).serve(to="search:")
    running = serving.served_view(log, "by_page", "by_page@1", view, served)
    running.start()
    try:
        pipeline.batch(apples=1, pears=2)
        until(lambda: [each.lag for each in running.statuses()] == [0, 0] and out.getvalue(), what="both")
    finally:
        running.stop()
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {"view": "by_page", "weight": 1, "row": {"page": "apples", "n": 1}} in told
    index = Search().open(served)
    assert index.search("pears")[0].to_pylist() == [{"page": "pears", "n": 2}]  # type: ignore[attr-defined]
    index.close()


def test_mails_begin_with_what_changes_after_the_first_start(
    log: hw.Log, pipeline: Pipeline, view: View, served: Served, until: Callable[..., None]
) -> None:
    from headwater.serve.stores.outbox import Outbox

    mail = Email("ops@example.org", "hw@example.org", hw.stores.Server("127.0.0.1", 9))
    pipeline.batch(**{f"p{n}": n for n in range(100)})
    view.serve(to=mail)
    running = serving.served_view(log, "by_page", "by_page@1", view, served)
    running.start()
    try:
        until(lambda: running.statuses()[0].lag == 0, what="the start")
        pipeline.batch(new=1)
        until(lambda: running.statuses()[0].lag == 0 and running.statuses()[0].failure, what="the mail")
        assert running.statuses()[0].failure == "ConnectionRefusedError"
    finally:
        running.stop()
    outbox = mail.open(served)
    assert isinstance(outbox, Outbox)
    (message,) = outbox.waiting()
    assert message.body.decode().startswith("by_page: 1 row changed\n")
    outbox.close()


def test_the_status_line_has_a_stores_lag_and_what_it_says() -> None:
    from headwater.cli.status import _served

    well = serving.StoreStatus("by_page", "redis://h/0", 12_000, 0.5)
    assert _served(well) == "by_page -> redis://h/0: lag 12.0k"
    down = serving.StoreStatus("by_page", "redis://h/0", None, 9.0, "it is down.", "far behind")
    assert _served(down) == "by_page -> redis://h/0: no answer (it is down. far behind)"


# --- addresses ---


def test_addresses_stand_for_stores() -> None:
    told: dict[str, Any] = {
        "postgresql://u:p@h/db?table=t&sslmode=require": Postgres("postgresql://u:p@h/db?sslmode=require", "t"),
        "postgresql://h/db?schema=s": Postgres("postgresql://h/db", None, "s"),
        "redis://:p@h:1/0?prefix=x": Redis("redis://:p@h:1/0", "x"),
        "duckdb:data/v.duckdb": DuckDB("data/v.duckdb"),
        "duckdb:v?table=t": DuckDB("v", "t"),
        "parquet:out": Parquet("out"),
        "search:": Search(),
        "search:title,body": Search(("title", "body")),
        "stdout:": Stdout(),
        "mailto:a@b.org?sender=c@d.org&host=smtp.d.org": Email("a@b.org", "c@d.org", hw.stores.Server("smtp.d.org")),
    }
    for text, meant in told.items():
        assert destination(text) == meant


@pytest.mark.parametrize("text", ["", "nowhere", "mysql://h/db", "duckdb:", "stdout:x", "secret-token"])
def test_an_address_of_no_store_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(BadStore, match=r"postgresql://HOST/DATABASE\?table=NAME") as refused:
        destination(text)
    assert "secret-token" not in str(refused.value)


def test_a_webhook_by_its_address_brings_its_secret_along() -> None:
    secret = hw.stores.new_secret()
    assert destination(f"https://example.org/x#{secret}") == hw.stores.Webhook("https://example.org/x", secret)
    with pytest.raises(BadStore, match="its secret is not"):
        destination("https://example.org/x")


def test_the_same_store_twice_is_refused(view: View) -> None:
    view.serve(to="parquet:out")
    with pytest.raises(UsageError, match="is served to parquet:out twice"):
        view.serve(to=["duckdb:x", "parquet:out"])
    with pytest.raises(UsageError, match="has no full-text index"):
        view.search("x")


@pytest.mark.parametrize(
    "url", ["postgresql://me:hun%20ter2@h:5/db?password=s3cret&table=t", "redis://:hun%20ter2@h/0?password=s3cret"]
)
def test_no_secret_of_an_address_is_shown(url: str) -> None:
    made = destination(url)
    inner = f"cannot connect to {url} as hun ter2 or hun%20ter2 with s3cret"
    for text in (made.name, repr(made), without(url, inner)):
        for secret in ("hun ter2", "hun%20ter2", "s3cret"):
            assert secret not in text


def test_a_mail_reaches_a_server_with_its_headers(served: Served, until: Callable[..., None]) -> None:
    """A server of our own that speaks as much of SMTP as there is need for."""
    listening = socket.create_server(("127.0.0.1", 0))
    got: list[str] = []

    def answer() -> None:
        taken, _ = listening.accept()
        with taken, taken.makefile("rw", newline="\r\n") as talk:
            talk.write("220 here\n")
            talk.flush()
            for line in talk:
                got.append(line.strip())
                verb = line[:4].upper().strip()
                if got[-1] == "." or verb in ("EHLO", "MAIL", "RCPT", "DATA", "QUIT"):
                    talk.write({"DATA": "354 go on\n", "QUIT": "221 bye\n"}.get(verb, "250 well\n"))
                    talk.flush()

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    server = hw.stores.Server("127.0.0.1", listening.getsockname()[1])
    outbox = Email("ops@example.org", "hw@example.org", server).open(served)
    try:
        outbox.apply(changes(row("/a", 1)), mark(1))
        until(lambda: "." in got, what="the mail")
    finally:
        outbox.close()
        thread.join(10)
        listening.close()
    assert "mail from:<hw@example.org>" in [line.lower() for line in got]
    assert "Subject: by_page: 1 row changed" in got
    assert any(line.startswith("Message-ID: <msg_") and line.endswith("@example.org>") for line in got)
    assert '+ {"page": "/a", "n": 1}' in got


# --- a log that was restored, and stores that were not ---


def restored_to(folder: Path, backup_of: hw.Log, tmp_path: Path) -> None:
    """What was in the log at this moment, as a log of its own."""
    backup(backup_of, tmp_path / "backup")  # type: ignore[arg-type]
    restore(tmp_path / "backup", folder)


@pytest.mark.parametrize("further", [0, 5], ids=["still behind the store", "gone on beyond it"])
def test_stores_ahead_of_a_restored_log_are_filled_anew_from_it(
    log: hw.Log,
    pipeline: Pipeline,
    view: View,
    served: Served,
    tmp_path: Path,
    until: Callable[..., None],
    further: int,
) -> None:
    other = Broken(path=tmp_path / "other.db")
    outbox = Webhook("https://127.0.0.1:1/", new_secret(), allow_private=True)
    view.serve(to=[other, outbox])
    pipeline.batch(a=1, b=1)
    restored_to(tmp_path / "again", log, tmp_path)
    running = serving.served_view(log, "by_page", "by_page@1", view, served)
    running.start()
    pipeline.batch(a=2, lost=1)
    until(running.settled, what="the stores")
    until(lambda: rows_in(tmp_path / "own.db") == {"a": 2, "b": 1, "lost": 1}, what="the view's own store")
    running.stop()
    view.close()

    again = hw.open(f"file:{tmp_path / 'again'}")
    with pytest.raises(StoreAstray, match="it stands at append 2, .* the log ends at 1") as refused:
        refuse_astray(again, "by_page", "by_page@1", view.store, view="by_page")
    assert "headwater run FILE" in str(refused.value)
    going_on = Pipeline(again)
    going_on.rows, going_on.sequence, going_on.end = {"a": 1, "b": 1}, 1, Position.of({"clicks": {0: 10}})
    clicks = Topic(again, again.create(TopicSpec("clicks", SCHEMA, partitions=1)))
    for number in range(further):
        clicks.append([{"page": "a", "n": 1}])
        going_on.batch(a=10 + number, other=number)
    running = serving.served_view(again, "by_page", "by_page@1", view, served)
    running.start()
    wanted = {"a": 1, "b": 1} if not further else {"a": 9 + further, "b": 1, "other": further - 1}
    until(lambda: rows_in(tmp_path / "other.db") == wanted, what="the other store to have what the log has")
    until(lambda: rows_in(tmp_path / "own.db") == wanted, what="the view's own store, too")
    until(running.settled, what="all stores")
    running.stop()
    again.close()
    told = [json.loads(body)["data"] for body in waiting(served.folder)]
    assert told[0]["restart"], "who is told is told that all begins anew"
    assert "lost" not in json.dumps(told)


def test_who_reads_a_store_that_the_log_knows_nothing_of_is_told(tmp_path: Path) -> None:
    def declared() -> hw.App:
        app = hw.App("shop", log=f"file:{tmp_path / 'data'}")
        app.topic("clicks", {"page": "string"})
        app.view("by_page", sql="SELECT page, count(*) AS n FROM clicks GROUP BY page")
        return app

    with declared() as app:
        store = app.views["by_page"].store
        assert app.views["by_page"].read().num_rows == 0
        store.apply(changes(row("/lost", 1), schema=SCHEMA), mark(7))
    with declared() as app, pytest.raises(StoreAstray, match="it holds append 7, and the log has no topic 'by_page'"):
        app.views["by_page"].read()


def waiting(folder: Path) -> list[bytes]:
    (file,) = folder.glob("*.outbox")
    connection = apsw.Connection(str(file))
    try:
        return [row[0] for row in connection.execute("SELECT body FROM messages ORDER BY id")]
    finally:
        connection.close()

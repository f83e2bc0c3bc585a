"""Webhooks over HTTP, signed by the `standardwebhooks` package and posted to a real server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

import headwater as hw
from headwater.errors import BadCapture, BadName, TopicNotFound, UsageError
from headwater.serve.access import Access
from headwater.serve.server import Server
from headwater.serving import start_server

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"x" * 32).decode()
COLUMNS = {"id": "string", "source": "string", "type": "string", "order": "int64"}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[hw.App]:
    with hw.App("shop", log=f"file:{tmp_path / 'log'}") as made:
        made.topic("payments", COLUMNS, key="id")
        made.webhooks("bank", into="payments", secrets=[SECRET])
        yield made


@pytest.fixture
def server(app: hw.App) -> Iterator[Server]:
    started = start_server(app.log, app.folder, "127.0.0.1:0", app)
    yield started
    started.stop()


def post(
    server: Server,
    data: Any,
    *,
    secret: str = SECRET,
    name: str = "msg_1",
    hook: str = "bank",
    ago: timedelta = timedelta(0),
) -> httpx2.Response:
    body = json.dumps({"type": "order.paid", "data": data})
    at = datetime.now(UTC) - ago
    headers = {
        "content-type": "application/json",
        "webhook-id": name,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(name, at, body),
    }
    return httpx2.post(f"{server.url}/hooks/{hook}", content=body, headers=headers)


def rows(app: hw.App) -> list[dict[str, Any]]:
    return [{name: row[name] for name in COLUMNS} for row in app.topics["payments"].read().to_pylist()]


def counted(server: Server, token: str = "") -> dict[str, str]:
    told = httpx2.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
    lines = [line for line in told.text.splitlines() if line.startswith("headwater_webhooks_total{")]
    return {line.partition('outcome="')[2].partition('"')[0]: line.rpartition(" ")[2] for line in lines}


def test_a_signed_webhook_is_a_record_once_also_when_it_comes_again(app: hw.App, server: Server) -> None:
    answers = [post(server, {"order": 7}) for _ in range(3)]
    assert [(each.status_code, each.content) for each in answers] == [(204, b"")] * 3
    assert rows(app) == [{"id": "msg_1", "source": "bank", "type": "order.paid", "order": 7}]
    assert counted(server) == {"appended": "1.0", "repeated": "2.0"}


def test_what_is_not_signed_with_the_secret_or_too_old_is_refused_without_a_look_at_it(
    app: hw.App, server: Server
) -> None:
    bare = httpx2.post(f"{server.url}/hooks/bank", content=b"not even JSON")
    for refused in (
        post(server, {"order": 7}, secret=OTHER),
        post(server, {"order": 7}, ago=timedelta(hours=1)),
        bare,
    ):
        assert (refused.status_code, refused.json()["title"]) == (401, "BadSignature")
        assert refused.headers["content-type"] == "application/problem+json"
        assert SECRET not in refused.text
    assert rows(app) == []
    assert counted(server) == {"refused": "3.0"}


def test_what_does_not_fit_is_told_to_its_sender(app: hw.App, server: Server) -> None:
    wrong = post(server, {"order": "seven"})
    assert (wrong.status_code, wrong.json()["title"]) == (422, "BadRecord")
    assert post(server, {"order": 7}).status_code == 204, "its id was not used up"


def test_an_unknown_name_is_not_found_and_others_are_not_named(server: Server) -> None:
    unknown = post(server, {"order": 7}, hook="shop")
    assert (unknown.status_code, unknown.json()["title"]) == (404, "HookNotFound")
    assert "bank" not in unknown.text
    assert counted(server) == {}, "what a stranger names is not counted by its name"


def test_a_body_has_a_limit(app: hw.App, server: Server) -> None:
    large = httpx2.post(f"{server.url}/hooks/bank", content=b"x" * (17 * 1024 * 1024))
    assert (large.status_code, large.json()["title"]) == (413, "TooLarge")


def test_the_signature_is_the_key_where_all_others_need_a_token(app: hw.App, server: Server) -> None:
    made = Access(app.folder).add_token("watcher", [])
    assert httpx2.get(f"{server.url}/topics/payments").status_code == 401
    assert post(server, {"order": 7}).status_code == 204
    assert made


def test_what_cannot_be_declared_is_refused(app: hw.App) -> None:
    with pytest.raises(UsageError, match="'bank' are declared twice"):
        app.webhooks("bank", into="payments", secrets=[SECRET])
    with pytest.raises(TopicNotFound):
        app.webhooks("other", into="nowhere", secrets=[SECRET])
    with pytest.raises(BadName):
        app.webhooks("../bank", into="payments", secrets=[SECRET])
    with pytest.raises(BadCapture, match="is not one of Standard Webhooks"):
        app.webhooks("other", into="payments", secrets=["hunter2"])
    assert list(app.hooks) == ["bank"]

"""Who may do what: rules, tokens, sessions; every route declares what it needs; no secret is ever told."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.routing import BaseRoute

from headwater.errors import BadRule, Forbidden, Unauthenticated, UsageError
from headwater.serve.access import Access, Principal, Rule, credentials, parse_rule
from headwater.serve.access.rules import allowed
from headwater.serve.access.sessions import COOKIE
from headwater.serve.address import Address
from headwater.serve.http.permissions import Needs
from headwater.serve.redaction import Redaction, redacted
from headwater.serve.server import Server
from tests.unit.http_shop import Shop, click

PASSWORD = "correct horse battery"
RECORDS = "/topics/clicks/records"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = PasswordHasher(time_cost=1, memory_cost=1024)
    monkeypatch.setattr(credentials, "_hasher", lambda: quick)


@pytest.fixture
def access(shop: Shop) -> Access:
    return shop.access


@pytest.fixture
def client(shop: Shop, access: Access) -> TestClient:
    return TestClient(shop.api(access=access), raise_server_exceptions=False, base_url="https://testserver")


def token(access: Access, principal: str, *allow: str, deny: tuple[str, ...] = (), **more: Any) -> dict[str, str]:
    rules = [parse_rule(principal, "allow", text) for text in allow]
    rules += [parse_rule(principal, "deny", text) for text in deny]
    return {"Authorization": f"Bearer {access.add_token(principal, rules, **more)[1]}"}


# --- rules ---


def decide(rules: list[str], operation: str, resource: str, who: str = "ada") -> bool:
    made = [Rule(*text.split()) for text in rules]  # type: ignore[arg-type]
    return allowed(made, who, operation, resource)


def test_nothing_is_allowed_that_no_rule_allows() -> None:
    assert not decide([], "read", "topic:clicks")
    assert not decide(["bob allow * *"], "read", "topic:clicks")
    assert not decide(["ada allow read topic:clicks"], "append", "topic:clicks")
    assert not decide(["ada allow read topic:clicks"], "read", "topic:clicks2")


def test_a_prefix_stands_for_all_that_begin_like_it() -> None:
    assert decide(["ada allow read topic:cl*"], "read", "topic:clicks")
    assert decide(["ada allow * *"], "append", "topic:clicks")
    assert not decide(["ada allow read topic:cl*"], "read", "view:clicks")


def test_one_denial_outweighs_all_that_allows() -> None:
    rules = ["ada allow * *", "ada deny read topic:salaries"]
    assert not decide(rules, "read", "topic:salaries")
    assert decide(rules, "append", "topic:salaries")
    assert not decide(["ada deny * topic:*", "ada allow read topic:clicks"], "read", "topic:clicks")


def test_rules_of_others_open_nothing_for_somebody_without_rules() -> None:
    """KAFKA-14435: a prefix rule of one principal must not count as 'no rule found' for another."""
    for rules in (["bob allow read topic:cl*"], ["bob deny read topic:clicks"], ["bob allow read topic:clicks"], []):
        assert not decide(rules, "read", "topic:clicks")


WRONG = ["read", "read clicks", "fly topic:x", "read planet:x", "read topic:", "read topic:a b"]


@pytest.mark.parametrize("text", WRONG)
def test_a_rule_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadRule):
        parse_rule("ada", "allow", text)


# --- tokens and the file ---


def test_the_file_is_its_owners_alone_and_holds_no_secret(access: Access, shop: Shop) -> None:
    _, secret = access.add_token("web", [parse_rule("web", "allow", "append topic:clicks")])
    access.add_user("ada", PASSWORD, [])
    file = shop.folder / "access.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in file.read_text()
    assert secret.split("_", 2)[2] not in file.read_text()
    assert PASSWORD not in file.read_text()
    assert "$argon2id$" in file.read_text()


def test_a_token_is_worth_nothing_once_revoked_or_expired(shop: Shop) -> None:
    now = [1_000_000]
    access = Access(shop.folder, clock=lambda: now[0])
    short, secret = access.add_token("web", [], lasts_us=10)
    assert access.by_token(secret) == Principal("web")
    now[0] += 10
    with pytest.raises(Unauthenticated):
        access.by_token(secret)
    lasting, secret = access.add_token("web", [])
    access.revoke(lasting.id)
    with pytest.raises(Unauthenticated):
        access.by_token(secret)
    assert access.book().by_id.keys() == {short.id}


def test_rules_go_with_the_last_credential(access: Access) -> None:
    made, _ = access.add_token("web", [parse_rule("web", "allow", "* *")])
    access.revoke(made.id)
    assert access.book().rules == ()
    with pytest.raises(Forbidden):
        access.check(Principal("web"), "read", "topic:clicks")


def test_revoking_the_last_token_does_not_open_the_door(client: TestClient, access: Access, shop: Shop) -> None:
    assert client.get("/topics").status_code == 200
    made, _ = access.add_token("web", [])
    assert client.get("/topics").status_code == 401
    access.revoke(made.id)
    assert client.get("/topics").status_code == 401
    (shop.folder / "access.json").unlink()
    assert client.get("/topics").status_code == 401


# --- over HTTP ---


def test_a_token_does_what_its_rules_allow_and_no_more(client: TestClient, access: Access, shop: Shop) -> None:
    web = token(access, "web", "append topic:clicks")
    assert client.post(RECORDS, json=click(), headers=web).status_code == 200
    refused = client.get(RECORDS, headers=web)
    assert (refused.status_code, refused.json()["title"]) == (403, "Forbidden")
    assert "web is not allowed to read topic:clicks" in refused.json()["detail"]
    assert client.post(RECORDS, json=click()).headers["www-authenticate"] == "Bearer"
    assert client.get("/topics", headers=web).json() == []
    assert shop.clicks.read().num_rows == 1


def test_whether_a_thing_exists_is_told_only_to_who_may_read_it(client: TestClient, access: Access) -> None:
    web = token(access, "web", "read topic:other*")
    assert client.get("/topics/clicks", headers=web).status_code == 403
    assert client.get("/topics/nope", headers=web).status_code == 403
    assert client.get("/topics/others", headers=web).status_code == 404


def test_sql_reads_only_what_its_asker_may_read(client: TestClient, access: Access) -> None:
    analyst = token(access, "analyst", "read view:by_page")
    assert client.post("/sql", json={"sql": "SELECT * FROM by_page"}, headers=analyst).status_code == 200
    for sql in ("SELECT * FROM clicks", "SELECT * FROM by_page WHERE EXISTS (SELECT 1 FROM clicks)"):
        assert client.post("/sql", json={"sql": sql}, headers=analyst).status_code == 403


def test_a_group_needs_the_group_and_its_topic(client: TestClient, access: Access) -> None:
    half = token(access, "half", "consume group:*")
    whole = token(access, "whole", "consume group:g", "read topic:clicks")
    url = "/topics/clicks/groups/g/join"
    assert client.post(url, json={"member": "a"}, headers=half).status_code == 403
    assert client.post(url, json={"member": "a"}, headers=whole).status_code == 200


def test_a_person_logs_in_and_changes_things_only_from_our_own_pages(client: TestClient, access: Access) -> None:
    access.add_user("ada", PASSWORD, [parse_rule("ada", "allow", "* *")])
    wrong = client.post("/login", json={"name": "ada", "password": "wrong wrong wrong"})
    nobody = client.post("/login", json={"name": "eve", "password": "wrong wrong wrong"})
    assert wrong.status_code == nobody.status_code == 401
    assert wrong.json()["detail"] == nobody.json()["detail"]
    answer = client.post("/login", json={"name": "ada", "password": PASSWORD})
    cookie = answer.headers["set-cookie"].lower()
    assert all(part in cookie for part in ("httponly", "secure", "samesite=lax"))
    csrf = {"X-CSRF-Token": answer.json()["csrf"]}
    assert client.get("/topics").status_code == 200
    assert client.get("/session").json() == {"principal": "ada", "csrf": csrf["X-CSRF-Token"]}
    assert client.post(RECORDS, json=click()).json()["title"] == "Forged"
    assert client.post(RECORDS, json=click(), headers={"X-CSRF-Token": "guess"}).status_code == 403
    assert client.post(RECORDS, json=click(), headers={**csrf, "Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.post(RECORDS, json=click(), headers={**csrf, "Origin": "https://evil.example"}).status_code == 403
    assert client.post(RECORDS, json=click(), headers={**csrf, "Sec-Fetch-Site": "same-origin"}).status_code == 200
    assert client.post(RECORDS, json=click(), headers={**csrf, "Origin": "https://testserver"}).status_code == 200
    before = client.cookies[COOKIE]
    assert client.post("/logout", headers=csrf).status_code == 204
    client.cookies.set(COOKIE, before)
    assert client.get("/topics").status_code == 401


def test_who_was_removed_is_out_at_once(client: TestClient, access: Access) -> None:
    access.add_user("ada", PASSWORD, [parse_rule("ada", "allow", "* *")])
    client.post("/login", json={"name": "ada", "password": PASSWORD}).raise_for_status()
    assert client.get("/topics").status_code == 200
    access.remove_user("ada")
    assert client.get("/topics").status_code == 401


def test_passwords_cannot_be_tried_for_ever(
    client: TestClient, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.serve.access import sessions

    monkeypatch.setattr(sessions, "TRIES", 2)
    access.add_user("ada", PASSWORD, [])
    tried = [client.post("/login", json={"name": "ada", "password": "wrong"}).status_code for _ in range(3)]
    assert tried == [401, 401, 429]


def test_without_authentication_other_sites_still_change_nothing(client: TestClient) -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert client.post(RECORDS, json=click(), headers=cross).status_code == 403
    assert client.post(RECORDS, json=click()).status_code == 200


def test_a_short_password_is_refused(access: Access) -> None:
    with pytest.raises(UsageError, match="fewer than 10"):
        access.add_user("ada", "short", [])


# --- addresses ---


def test_an_address_that_all_can_reach_demands_somebody(shop: Shop, access: Access) -> None:
    with pytest.raises(UsageError, match="nobody is known here"):
        Server(shop.api(access=access), "0.0.0.0:0", access=access)
    access.add_token("web", [])
    server = Server(shop.api(access=access), "0.0.0.0:0", access=access)
    server.stop()
    assert access.on


def asked_as(server: Server, host: str | None, method: str = "GET", **headers: str) -> httpx2.Response:
    named = {**headers, **({"Host": host} if host is not None else {})}
    return httpx2.request(method, f"{server.url}/topics/clicks/records", headers=named, json=click())


def test_without_authentication_only_our_own_names_are_answered(shop: Shop, access: Access) -> None:
    server = shop.server("127.0.0.1:0?name=shop.test", access=access)
    try:
        for ours in (
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1",
            "127.0.0.1:1",
            "127.0.0.2",
            "[::1]:99",
            "shop.test:80",
        ):
            assert asked_as(server, ours).status_code == 200, ours
        foreign = (
            "evil.test",
            "evil.test:80",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "10.0.0.1",
            "[::2]",
            "x y",
        )
        for other in foreign:
            refused = asked_as(server, other)
            assert (refused.status_code, refused.json()["title"]) == (403, "ForeignHost"), other
            assert refused.headers["content-type"] == "application/problem+json"
        assert "name=NAME" in refused.json()["detail"]
        assert asked_as(server, "evil.test", "POST").status_code == 403
        assert httpx2.get(f"{server.url}/console/", headers={"Host": "evil.test"}).status_code == 403, "pages, too"
        rebound = asked_as(server, "evil.test", "POST", Origin="http://evil.test")
        assert rebound.json()["title"] == "ForeignHost", "its origin is its host, and still it is not ours"
        foreign_origin = asked_as(server, "localhost", "POST", Origin="http://evil.test")
        assert foreign_origin.json()["title"] == "Forged"
        assert shop.clicks.read().num_rows == 0
        access.add_token("web", [])
        assert asked_as(server, "evil.test").status_code == 401, "from now on, who asks has to say who they are"
    finally:
        server.stop()


@pytest.mark.parametrize("address", ["127.0.0.1:0?nam=x", "127.0.0.1:0?name=a:80", "127.0.0.1:0?name="])
def test_a_name_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="name"):
        Address.parse(address)


# --- every route ---


def routes_of(api: FastAPI) -> list[BaseRoute]:
    """All of them, also those of routers that were included."""
    found: list[BaseRoute] = []
    for route in api.routes:
        included = getattr(route, "original_router", None)
        found += included.routes if included is not None else [route]
    return found


def declared(route: BaseRoute) -> list[Needs]:
    if not isinstance(route, APIRoute):
        return []
    return [each.call for each in route.dependant.dependencies if isinstance(each.call, Needs)]


def test_every_route_declares_its_permission(shop: Shop) -> None:
    api = shop.api()
    undeclared = [getattr(route, "path", str(route)) for route in routes_of(api) if len(declared(route)) != 1]
    assert undeclared == []
    public = {getattr(route, "path", "") for route in routes_of(api) if declared(route)[0].public}
    assert public == {
        "/health",
        "/ready",
        "/login",
        "/hooks/{hook}",  # a signature says who sends
        "/openapi.json",
        "/",
        "/console/",
        "/console/console.js",
        "/console/console.css",
        "/console/login.html",
        "/console/login.js",
    }


def test_the_inventory_catches_a_route_without_one(shop: Shop) -> None:
    api = shop.api()
    api.get("/planted")(lambda: None)
    assert [route.path for route in routes_of(api) if not declared(route)] == ["/planted"]  # type: ignore[attr-defined]


def test_without_a_token_every_other_route_refuses(client: TestClient, access: Access, shop: Shop) -> None:
    access.add_token("web", [])
    asked = 0
    for route in routes_of(shop.api()):
        assert isinstance(route, APIRoute)
        if not declared(route)[0].public:
            path = route.path.replace("{", "").replace("}", "")
            for method in route.methods:
                assert client.request(method, path, json={}).status_code == 401, route.path
                asked += 1
    assert asked > 25


# --- secrets ---

CANARIES = ["kanarienvogel-passwort", "whsec_kanarienvogel", "hw_0123456789ab_kanarienvogel"]


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user:kanarienvogel@db/x",
        "password=kanarienvogel",
        '{"password": "kanarienvogel"}',
        "Authorization: Bearer kanarienvogel",
        "token: kanarienvogel",
        "whsec_kanarienvogel",
        "hw_0123456789ab_kanarienvogel",
        "$argon2id$v=19$m=65536,t=3,p=4$kanarienvogel",
        "api_key='kanarienvogel'",
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str) -> None:
    assert "kanarienvogel" not in redacted(f"it failed: {text} and more")


def test_positions_and_plain_words_stay() -> None:
    for text in ("view covers clicks:0=5, not yet clicks:0=6", "Use the token that an append returned"):
        assert redacted(text) == text


def test_no_secret_is_told_by_any_log_error_metric_or_page(
    client: TestClient, access: Access, shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    access.add_user("ada", CANARIES[0], [parse_rule("ada", "allow", "* *")])
    _, secret = access.add_token("web", [parse_rule("web", "allow", "* *")])
    good = {"Authorization": f"Bearer {secret}"}
    told: list[str] = []

    def note(answer: Any) -> None:
        told.extend((answer.text, json.dumps(dict(answer.headers))))

    note(client.post("/login", json={"name": "ada", "password": CANARIES[0], "extra": CANARIES[0]}))
    note(client.post("/login", json={"name": CANARIES[0], "password": [CANARIES[0]]}))
    note(client.get("/topics", headers={"Authorization": f"Bearer {CANARIES[2]}"}))
    note(client.post("/sql", json={"sql": f"SELECT '{CANARIES[1]}' FROM nowhere"}, headers=good))
    note(client.post(RECORDS, content=f'{{"user_id": "{CANARIES[1]}"}}', headers=good))

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"cannot reach postgresql://me:{CANARIES[0]}@db with {secret}")

    for way in ("append_parts", "append_each"):
        monkeypatch.setattr(shop.clicks, way, broken)
    with caplog.at_level(logging.ERROR):
        note(client.post(RECORDS, json=click(), headers=good))
    line = Redaction("%(message)s").format(caplog.records[-1])
    assert "cannot reach postgresql://me:***@db" in line
    assert "\n" not in line
    told.append(line)
    for page in ("/metrics", "/openapi.json", "/asyncapi.json", "/console/", "/views", "/topics", "/nowhere"):
        note(client.get(page, headers=good))
    everything = "\n".join(told)
    for canary in (*CANARIES, secret):
        assert canary not in everything

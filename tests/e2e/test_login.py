"""A person logs in with a real browser, changes things only from our own pages, and is out when the session is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.serve.access import parse_rule
from headwater.serve.server import Server
from tests.e2e.running import free_port
from tests.e2e.test_page import CHROMIUM, FLAGS
from tests.unit.http_shop import Shop, click

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PASSWORD = "correct horse battery"
APPEND = """async ([url, headers]) => (await fetch(url + "/topics/clicks/records", {
  method: "POST", body: '{"user_id": 1, "page": "/", "at": "2026-01-01T00:00:00Z"}', ...headers})).status"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "log")
    made.clicks.append([click(1, "/home"), click(2, "/home"), click(3, "/about")])
    made.count()
    yield made
    made.close()


@pytest.fixture
def page(must_have: Callable[[bool, str], None]) -> Iterator[Page]:
    must_have(CHROMIUM is not None, "chromium is not installed: apt install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser.new_context().new_page()
        browser.close()


def log_in(page: Page, password: str) -> None:
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_person_logs_in_and_is_out_when_the_session_is_over(shop: Shop, page: Page) -> None:
    from playwright.sync_api import expect

    rules = [parse_rule("ada", "allow", text) for text in ("read view:*", "append topic:clicks")]
    shop.access.add_user("ada", PASSWORD, rules)
    address = f"127.0.0.1:{free_port()}"
    server = shop.server(address, access=shop.access)
    try:
        _through_the_door(shop, page, server)
        server.stop()
        server = shop.server(address, access=shop.access)  # which knows of no session
        page.wait_for_url("**/console/login.html", timeout=30_000)
        log_in(page, PASSWORD)
        expect(page.locator("#chart g")).to_have_count(2, timeout=10_000)
        logout = """async () => { const csrf = (await (await fetch("/session")).json()).csrf;
          return (await fetch("/logout", {method: "POST", headers: {"X-CSRF-Token": csrf}})).status }"""
        assert page.evaluate(logout) == 204
        page.goto(f"{server.url}/console/")
        page.wait_for_url("**/console/login.html")
    finally:
        server.stop()


def _through_the_door(shop: Shop, page: Page, server: Server) -> None:
    from playwright.sync_api import expect

    page.goto(f"{server.url}/")
    page.wait_for_url("**/console/login.html")
    log_in(page, "a wrong password")
    expect(page.locator("#link")).to_contain_text("nobody is known by this request")
    assert page.url.endswith("login.html")
    log_in(page, PASSWORD)
    page.wait_for_url("**/console/")
    expect(page.locator("#chart g")).to_have_count(2, timeout=10_000)
    expect(page.locator("#link")).to_have_text("live")  # the feed comes with the cookie
    assert page.evaluate("document.cookie") == "", "scripts cannot read the session"
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Lax")
    assert PASSWORD not in page.content() + page.url

    kind = {"Content-Type": "application/json"}
    assert page.evaluate(APPEND, ["", {"headers": kind}]) == 403, "a cookie alone changes nothing"
    csrf = page.evaluate("""async () => (await (await fetch("/session")).json()).csrf""")
    assert page.evaluate(APPEND, ["", {"headers": {**kind, "X-CSRF-Token": csrf}}]) == 200

    elsewhere = shop.server()  # another origin, without our pages' rules of what they may call
    try:
        stranger = page.context.new_page()
        stranger.goto(f"{elsewhere.url.replace('127.0.0.1', 'localhost')}/openapi.json")
        stranger.evaluate(APPEND, [server.url, {"mode": "no-cors", "credentials": "include"}])
        stranger.close()
    finally:
        elsewhere.stop()
    assert shop.clicks.read().num_rows == 4, "what another site's page sends is refused"

"""What a person sees: the chart moves, Ctrl-C ends it, and the next start goes on where it was."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater import Position
from tests.e2e.running import ROOT, Shop

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "data")
    made.start()
    traffic = [sys.executable, ROOT / "examples" / "traffic.py", "--url", made.url, "--rate", "300", "--seconds", "300"]
    sending = subprocess.Popen(traffic)
    yield made
    sending.kill()
    sending.wait()
    made.end_group()


def test_the_chart_moves_and_a_restart_goes_on(
    shop: Shop, until: Callable[..., None], must_have: Callable[[bool, str], None], tmp_path: Path
) -> None:
    must_have(CHROMIUM is not None, "chromium is not installed: apt install chromium")
    until(lambda: shop.position() != "", within_s=120, what="the first batch")
    _watch_the_chart_move(shop.url, tmp_path / "page.png")

    before = Position.parse(shop.position())
    shop.process.send_signal(signal.SIGINT)
    assert shop.process.wait(timeout=60) == 0, shop.words.read_text()
    until(shop.group_is_gone, what="the end of all processes")
    assert shop.words.read_text().splitlines()[-1] == "shop: stopping"

    shop.start()
    until(lambda: shop.position() != "", within_s=60, what="the server")
    assert Position.parse(shop.position()).covers(before), "it goes on where it was"
    token = shop.post("/topics/clicks/records", [{"user_id": 1, "page": "/mine", "at": "2026-01-01"}], give_up_at=1e12)
    rows = shop.get("/views/by_page", after=token["position"], key="/mine", timeout_s="120")["rows"]
    assert [row["views"] for row in rows] == [1]


def _watch_the_chart_move(url: str, picture: Path) -> None:
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1100, "height": 800})
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{url}/")
        expect(page.locator("#chart g")).to_have_count(12, timeout=30_000)
        expect(page.locator("#link")).to_have_text("live")
        first = int(page.locator("#total").inner_text().replace(",", ""))
        page.wait_for_function(
            "first => Number(document.getElementById('total').textContent.replaceAll(',', '')) > first",
            arg=first,
            timeout=30_000,
        )
        page.select_option("#measure", "visitors")
        expect(page.locator("#total-name")).to_have_text("total visitors")
        page.screenshot(path=picture)
        assert complaints == []
        browser.close()

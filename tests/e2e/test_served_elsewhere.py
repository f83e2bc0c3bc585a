"""A view of a running app in several stores, one of which is dead: the others have all of it, and the app ends well."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import duckdb
import pytest

from headwater.cli.run import load_app
from tests.e2e.running import HEADWATER, free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

APP = """
import headwater as hw

app = hw.App("shop", log="file:{folder}/log")
app.topic("clicks", {{"user_id": "int64", "page": "string"}}, key="user_id")
by_page = app.view("by_page", sql="SELECT page, count(*) AS n FROM clicks GROUP BY page")
by_page.serve(to=["duckdb:{folder}/v.duckdb", "parquet:{folder}/files", "search:", "stdout:"])
by_page.serve(to="postgresql://me:hunter2@127.0.0.1:{port}/nowhere")
"""


def test_all_stores_that_live_have_the_view_when_the_app_has_caught_up(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP.format(folder=tmp_path, port=free_port()))
    clicks = [{"user_id": n, "page": f"page{n % 7}"} for n in range(1000)]
    with load_app(tmp_path / "shop.py") as app:
        app.topics["clicks"].append(clicks)
    ran = subprocess.run(
        [HEADWATER, "run", tmp_path / "shop.py", "--caught-up", "--http", "off"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr
    assert "hunter2" not in ran.stderr + ran.stdout
    wanted = Counter(click["page"] for click in clicks)
    with duckdb.connect(str(tmp_path / "v.duckdb")) as connection:
        assert dict(connection.execute("SELECT page, n FROM by_page").fetchall()) == wanted
    with duckdb.connect() as connection:
        files = connection.execute(f"SELECT page, n FROM '{tmp_path}/files/current/*.parquet'").fetchall()
        assert dict(files) == wanted
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    summed: Counter[tuple[str, int]] = Counter()
    for each in told:
        summed[each["row"]["page"], each["row"]["n"]] += each["weight"]
    assert {page: n for (page, n), times in summed.items() if times} == wanted
    with load_app(tmp_path / "shop.py") as app:
        assert app.views["by_page"].search("page3").to_pylist() == [{"page": "page3", "n": wanted["page3"]}]

"""The line that tells how a running app stands."""

from __future__ import annotations

import pytest

from headwater.capture.status import CaptureStatus
from headwater.cli import status as module
from headwater.cli.status import StatusLine
from headwater.process.pipeline import Status


def test_rates_lag_and_batch_time_where_somebody_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter([0.0, 2.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(module, "_width", lambda: 200)
    line = StatusLine("shop")
    line.show([Status("by_page", rows_in=100, rows_out=10, late=0, lag=50_000, batch=1, batch_s=None)])
    line.show([Status("by_page", rows_in=40_100, rows_out=30, late=7, lag=12, batch=2, batch_s=0.75)])
    told = capsys.readouterr().err.split("\r")[-1]
    assert told.endswith("shop: by_page 20.0k/s in, 10/s out, lag 12, 7 late, batch 0.8 s")


def test_of_a_feed_it_tells_what_was_not_appended_and_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter([0.0, 2.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(module, "_width", lambda: 300)
    line = StatusLine("shop")
    line.show([CaptureStatus("stats", "listening", rows=10, when_slow="drop_newest")])
    line.show(
        [
            CaptureStatus(
                "stats",
                "listening",
                rows=30,
                when_slow="drop_newest",
                waiting="it is full",
                bad=2,
                dropped=12_345,
                lost=1,
            )
        ]
    )
    told = capsys.readouterr().err.split("\r")[-1]
    counted = "2 bad, 12.3k dropped, 1 lost, waiting (drop_newest): it is full"
    assert told.endswith(f"shop: capture stats: listening, 10/s, {counted}")


def test_nobody_watching_is_told_seldom(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([100.0, 101.0, 131.0, 170.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(moments))
    line = StatusLine("shop")
    for rows in (1, 2, 3, 3):
        line.show([Status("v", rows_in=rows, rows_out=0, late=0, lag=0, batch=0, batch_s=None)])
    assert len(capsys.readouterr().err.splitlines()) == 2

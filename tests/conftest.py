"""What tests share: a log in a new folder, a wait that has a deadline, and parts that must be there under CI."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import headwater as hw

# `make check` takes a few examples of each property, `make test` more; a failure prints how to repeat it.
settings.register_profile("quick", max_examples=6, deadline=None, print_blob=True)
settings.register_profile("full", max_examples=40, deadline=None, print_blob=True)
settings.register_profile("prove", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile("full")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[hw.Log]:
    opened = hw.open(f"file:{tmp_path / 'log'}")
    yield opened
    opened.close()


@pytest.fixture
def until() -> Callable[..., None]:
    def wait(condition: Callable[[], object], *, within_s: float = 30, what: str = "the condition") -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true within {within_s} s"
            time.sleep(0.01)

    return wait


@pytest.fixture
def must_have() -> Callable[[bool, str], None]:
    """A part from outside that is missing: a skip on a user's machine, a failure under CI."""

    def check(there: bool, reason: str) -> None:
        if not there:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)

    return check

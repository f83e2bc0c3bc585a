from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lanes import Lanes


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    yield from _made(tmp_path, "two_lanes.py")


@pytest.fixture
def lanes_and_views(tmp_path: Path) -> Iterator[Lanes]:
    yield from _made(tmp_path, "many_views.py")


def _made(folder: Path, file: str) -> Iterator[Lanes]:
    seed = random.randrange(1_000_000)
    made = Lanes(folder / "data", seed, file)
    yield made
    made.close()
    told = made.words.read_text()[-6000:] if made.words.exists() else ""
    print(f"seed {seed}\n{told}")  # noqa: T201  (shown if the test fails)

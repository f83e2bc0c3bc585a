from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lanes import Lanes


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    seed = random.randrange(1_000_000)
    made = Lanes(tmp_path / "data", seed)
    yield made
    made.close()
    told = made.words.read_text()[-6000:] if made.words.exists() else ""
    print(f"seed {seed}\n{told}")  # noqa: T201  (shown if the test fails)

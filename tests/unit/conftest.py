"""What several tests of one room start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from headwater.log.embedded import EmbeddedLog
from tests.unit.http_shop import Shop


@pytest.fixture
def other(log: EmbeddedLog) -> Iterator[EmbeddedLog]:
    """The log in another process, as far as what is remembered goes."""
    opened = EmbeddedLog(log.root)
    yield opened
    opened.close()


@pytest.fixture
def executed(log: EmbeddedLog) -> Callable[[], list[str]]:
    """The statements that this thread has read the catalog with since it last asked."""
    seen: list[str] = []
    with log.catalog.read() as catalog:
        catalog.set_exec_trace(lambda _cursor, statement, _given: [seen.append(statement)] == [None])

    def taken() -> list[str]:
        told, seen[:] = list(seen), []
        return told

    return taken


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def client(shop: Shop) -> TestClient:
    return TestClient(shop.api(), raise_server_exceptions=False)

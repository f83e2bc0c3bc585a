"""What the server says of itself in OpenAPI, tried by schemathesis: whatever it is sent, it answers as it said."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headwater.serve.server import Server
from tests.unit.http_shop import Shop, click

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

CHECKS: list[Any] = [
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
EXAMPLES = int(os.environ.get("HEADWATER_EXAMPLES", "8"))
ENDLESS = r"/(follow|changes|live)$"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    shop = Shop(tmp_path_factory.mktemp("shop") / "log")
    shop.clicks.append([click(n) for n in range(5)])
    shop.count()
    running = shop.server()
    yield running
    running.stop()
    shop.close()


@pytest.fixture(scope="module")
def described(server: Server) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json").exclude(path_regex=ENDLESS)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_whatever_is_asked_is_answered_as_described(described: Any, mode: GenerationMode) -> None:
    asked = 0
    for found in described.get_all_operations():
        operation = found.ok()

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: schemathesis.Case) -> None:
            nonlocal asked
            asked += 1
            _ask(case)

        with contextlib.suppress(Unsatisfiable):  # nothing can be wrong where nothing is asked
            check()
    assert asked > 100


def _ask(case: schemathesis.Case) -> None:
    for place in (case.query, case.body):
        for name in ("wait_s", "timeout_s"):  # nothing is waited for
            if isinstance(place, dict) and type(place.get(name)) in (int, float):
                place[name] = min(place[name], 0.1)
    named = {"topic": "clicks", "view": "by_page"}
    if len(case.path_parameters or {}) == 1:  # of what is there, more can go wrong
        case.path_parameters.update({name: value for name, value in named.items() if name in case.path_parameters})
    case.call_and_validate(checks=CHECKS)

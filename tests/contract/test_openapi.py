"""What the server says of itself in OpenAPI, tried by schemathesis: whatever it is sent, it answers as it said."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
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


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_asked_is_answered_as_described(case: schemathesis.Case) -> None:
    for place in (case.query, case.body):
        if isinstance(place, dict):  # nothing is waited for
            for name in ("wait_s", "timeout_s"):
                if isinstance(place.get(name), int | float) and not isinstance(place.get(name), bool):
                    place[name] = min(place[name], 0.1)
    named = {"topic": "clicks", "view": "by_page"}
    if case.path_parameters and len(case.path_parameters) == 1:  # of what is there, more can go wrong
        case.path_parameters.update({name: value for name, value in named.items() if name in case.path_parameters})
    case.call_and_validate(checks=CHECKS)

"""Commands: what deciders are asked to do. A command that is refused is a problem, never an event."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from headwater.serve.http.answers import json_answer
from headwater.serve.http.groups import Strict
from headwater.serve.http.permissions import needs
from headwater.serve.http.served import Served


class Command(Strict):
    kind: Annotated[str, Field(min_length=1, max_length=200)]
    payload: dict[str, Any] = Field(default_factory=dict)


def command_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["commands"])

    @router.post("/commands/{decider}/{aggregate}", dependencies=[needs("command", "decider")])
    async def submit(
        decider: str,
        aggregate: str,
        asked: Command,
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    ) -> Response:
        """Decide on a command for one aggregate; with an Idempotency-Key, the same command twice is one."""
        chosen = served.decider(decider)
        done = await run_in_threadpool(chosen.submit, aggregate, asked.kind, asked.payload, idempotency_key)
        events = [_event(each) for each in done.events]
        told = {"events": events, "position": str(done.position), "version": done.version, "repeated": done.repeated}
        return json_answer(told)

    return router


def _event(event: Any) -> Any:
    if is_dataclass(event) and not isinstance(event, type):
        return {"kind": type(event).__name__, "payload": asdict(event)}
    return event

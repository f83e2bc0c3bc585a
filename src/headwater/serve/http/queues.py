"""Queues over HTTP: take records under a lease, settle them. An answer that gets lost is a lease that runs out."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from headwater.log.queues import ATTEMPTS, LEASE_S, LOOK_S, Queue
from headwater.serve.http.answers import json_answer
from headwater.serve.http.groups import Strict
from headwater.serve.http.permissions import needs, needs_somebody
from headwater.serve.http.served import Served

Lease = Annotated[float, Field(gt=0, le=86_400)]


class Create(Strict):
    topic: Annotated[str, Field(min_length=1, max_length=200)]
    lease_s: Lease = LEASE_S
    attempts: Annotated[int, Field(ge=1, le=1000)] = ATTEMPTS
    dead: Annotated[str | None, Field(max_length=200)] = None
    start: Literal["start", "end"] = "start"


class Take(Strict):
    count: Annotated[int, Field(ge=1, le=1000)] = 1
    wait_s: Annotated[float, Field(ge=0, le=60)] = 0


class Settle(Strict):
    receipt: Annotated[str, Field(min_length=1, max_length=200)]


class Extend(Settle):
    lease_s: Lease | None = None


class QueueAnswer(BaseModel):
    name: str
    topic: str
    lease_s: float
    attempts: int
    dead: str


def queue_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["queues"])
    consume = [needs("consume", "queue")]

    @router.get("/queues", dependencies=[needs_somebody()])
    def list_queues(request: Request) -> list[QueueAnswer]:
        """All queues that you may take from."""
        who = request.state.principal
        known = [each for each in served.queues.queues() if served.guard.may(who, "consume", f"queue:{each.name}")]
        return [QueueAnswer(**asdict(each)) for each in known]

    @router.put("/queues/{queue}", dependencies=[needs("admin", "queue")])
    def create(queue: str, asked: Create, request: Request) -> QueueAnswer:
        """Make a queue on a stream that you may read, or find it as it is if it was made alike."""
        served.guard.check(request.state.principal, "read", f"topic:{asked.topic}")
        served.readable(asked.topic)
        return QueueAnswer(**asdict(served.queues.create(queue, **asked.model_dump())))

    @router.get("/queues/{queue}", dependencies=consume)
    def describe_queue(queue: str) -> dict[str, Any]:
        """What waits, is taken and came back, a line a partition, and how many died."""
        lag = served.queues.lag(queue)
        dead = Queue(served.log, served.queues, queue).dead()
        return {"queue": queue, "dead": dead, "lag": [asdict(row) for row in lag]}

    @router.post("/queues/{queue}/take", dependencies=consume)
    async def take(queue: str, asked: Take) -> Response:
        """Up to `count` records, as soon as there are any."""
        deadline = time.monotonic() + asked.wait_s
        while True:
            newest = await run_in_threadpool(served.log.snapshot, [])
            taken = await run_in_threadpool(served.queues.take, queue, asked.count)
            left = deadline - time.monotonic()
            if taken or left <= 0:
                return json_answer({"deliveries": [asdict(each) for each in taken]})
            await served.pulse.wait(newest.number, min(left, LOOK_S))

    @router.post("/queues/{queue}/acknowledge", dependencies=consume, status_code=204)
    def acknowledge(queue: str, asked: Settle) -> None:
        """Done with a record."""
        served.queues.acknowledge(queue, asked.receipt)

    @router.post("/queues/{queue}/release", dependencies=consume, status_code=204)
    def release(queue: str, asked: Settle) -> None:
        """Let anyone have it at once."""
        served.queues.release(queue, asked.receipt)

    @router.post("/queues/{queue}/reject", dependencies=consume, status_code=204)
    def reject(queue: str, asked: Settle) -> None:
        """To the dead letters."""
        served.queues.reject(queue, asked.receipt)

    @router.post("/queues/{queue}/extend", dependencies=consume)
    def extend(queue: str, asked: Extend) -> Response:
        """The work goes on: hold it for longer."""
        return json_answer({"until": served.queues.extend(queue, asked.receipt, lease_s=asked.lease_s)})

    return router

"""Groups over HTTP. The server keeps nothing between requests: a member says what it has read in its generation.

So an answer that is lost on its way is asked for again, and nothing is skipped; a poll is also the member's heartbeat.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from headwater.log.groups import LOOK_S, SESSION_S, Consumer
from headwater.log.topic import METADATA
from headwater.serve.http.answers import CONTENT, form_of, json_answer, rows_answer
from headwater.serve.http.limits import MOST_ROWS
from headwater.serve.http.permissions import needs_all, needs_somebody
from headwater.serve.http.served import Served

Offsets = dict[Annotated[int, Field(ge=0, lt=2**31)], Annotated[int, Field(ge=0, lt=2**63)]]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Session = Annotated[float, Field(ge=1, le=3600)]
PERMISSIONS = [needs_all(("consume", "group"), ("read", "topic"))]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Join(Strict):
    member: Name
    session_s: Session = SESSION_S
    start: Literal["start", "end"] = "start"


class Poll(Strict):
    member: Name
    generation: Annotated[int, Field(ge=0, lt=2**63)] = 0
    next: Offsets = {}
    """The next offset to read in each partition, as the last poll of this generation answered it."""
    session_s: Session = SESSION_S
    wait_s: Annotated[float, Field(ge=0, le=60)] = 0
    max_rows: Annotated[int, Field(ge=1, le=MOST_ROWS)] = 1000


class Commit(Strict):
    member: Name
    generation: Annotated[int, Field(ge=0, lt=2**63)]
    offsets: Offsets


class Leave(Strict):
    member: Name


class Assigned(BaseModel):
    generation: int
    partitions: list[int]
    next: dict[int, int]


def group_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["groups"])
    base = "/topics/{topic}/groups/{group}"

    @router.get("/groups", dependencies=[needs_somebody()])
    def list_groups(request: Request) -> list[dict[str, Any]]:
        """All groups on topics that you may read."""
        return [asdict(each) for each in served.groups.groups() if served.may_read(request, "topic", each.topic)]

    @router.get(base, dependencies=PERMISSIONS)
    def describe_group(topic: str, group: str) -> Response:
        """Its members, and how far it is behind in each partition."""
        groups = served.groups
        lag, members = groups.lag(group, topic), groups.members(group, topic)
        told = {"lag": [asdict(row) for row in lag], "members": [asdict(each) for each in members]}
        return json_answer({"group": group, "topic": topic, **told})

    @router.post(f"{base}/join", dependencies=PERMISSIONS)
    def join(topic: str, group: str, asked: Join) -> Assigned:
        served.readable(topic)
        groups = served.groups
        given = groups.join(group, topic, asked.member, session_s=asked.session_s, start=asked.start)
        committed = groups.committed(group, topic)
        here = {partition: committed[partition] for partition in given.partitions}
        return Assigned(generation=given.generation, partitions=list(given.partitions), next=here)

    @router.post(f"{base}/poll", dependencies=PERMISSIONS, responses=CONTENT)
    async def poll(topic: str, group: str, asked: Poll, request: Request) -> Response:
        """The next records of the member's partitions, as soon as there are any, with what to send the next time."""
        form = form_of(request)
        spec = served.readable(topic).spec
        consumer = Consumer(
            served.log, served.groups, group=group, topic=topic, member=asked.member, session_s=asked.session_s
        )
        await run_in_threadpool(consumer.resume, asked.generation, asked.next)
        deadline = time.monotonic() + asked.wait_s
        while True:
            newest = await run_in_threadpool(served.log.snapshot, [])
            polled = await run_in_threadpool(consumer.poll, 0.0, max_rows=asked.max_rows)
            left = deadline - time.monotonic()
            if polled is not None or left <= 0:
                break
            await served.pulse.wait(newest.number, min(left, LOOK_S, asked.session_s / 3))
        records = polled if polled is not None else pa.schema([*spec.stored, *METADATA]).empty_table()
        about = {"generation": consumer.generation, "partitions": list(consumer.partitions), "next": consumer.next}
        return await run_in_threadpool(rows_answer, form, records, about, called="records")

    @router.post(f"{base}/commit", dependencies=PERMISSIONS, status_code=204)
    def commit(topic: str, group: str, asked: Commit) -> None:
        served.groups.commit(group, topic, asked.member, generation=asked.generation, offsets=asked.offsets)

    @router.post(f"{base}/leave", dependencies=PERMISSIONS, status_code=204)
    def leave(topic: str, group: str, asked: Leave) -> None:
        served.groups.leave(group, topic, asked.member)

    return router

"""Topics: what is there, appending, reading."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from headwater.capture.intake import Intake, has_events
from headwater.errors import BadPosition, BadRequest, UsageError
from headwater.log.position import AppendNumber, Epoch, Position
from headwater.log.protocol import KEYED, Appended, Log, Producer, Snapshot
from headwater.log.spec import describe
from headwater.log.topic import Topic
from headwater.records import OFFSET, PARTITION
from headwater.serve.http.answers import ARROW, CONTENT, JSON, NDJSON, form_of, rows_answer
from headwater.serve.http.limits import MOST_ROWS, MOST_WAIT_S
from headwater.serve.http.permissions import needs, needs_somebody
from headwater.serve.http.served import Served

BODIES = (JSON, NDJSON, ARROW, "application/cloudevents+json", "application/cloudevents-batch+json")


class AppendAnswer(BaseModel):
    position: str
    """The token of this write: give it as `after` to read a view that reflects it."""
    append: int
    repeated: bool


def topic_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["topics"])
    intakes: dict[str, Intake] = {}

    @router.get("/topics", dependencies=[needs_somebody()])
    def list_topics(request: Request) -> list[dict[str, Any]]:
        """All topics that you may read."""
        names = [name for name in served.names() if served.may_read(request, "topic", name)]
        return [_described(served, served.readable(name)) for name in names]

    @router.get("/topics/{topic}", dependencies=[needs("read", "topic")])
    def describe_topic(topic: str) -> dict[str, Any]:
        return _described(served, served.readable(topic))

    @router.post(
        "/topics/{topic}/records",
        dependencies=[needs("append", "topic")],
        openapi_extra={"requestBody": {"required": True, "content": {kind: {"schema": {}} for kind in BODIES}}},
    )
    async def append(
        topic: str,
        request: Request,
        producer: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
        sequence: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    ) -> AppendAnswer:
        """One record or several: JSON (an object or an array), NDJSON, an Arrow stream, CloudEvents.

        With an Idempotency-Key, or with producer and sequence, the same append twice is one: retrying is safe. So it is
        with CloudEvents, by their source and id: a key adds nothing to that.
        """
        target = served.topic(topic)
        if (producer is None) != (sequence is None):
            raise UsageError(what="producer and sequence go together", do="Give both or neither")
        if producer is not None and producer.startswith("_"):
            raise UsageError(what=f"{producer!r} is Headwater's own", do="Name the producer without a leading '_'")
        if request.headers.get("content-encoding", "identity") != "identity":
            raise BadRequest(why="the body is compressed", do="Send it as it is; Arrow may be compressed inside")
        who = Producer(producer, Epoch(0)) if producer is not None else None
        kind, body = request.headers.get("content-type", ""), await request.body()
        if who is None and idempotency_key is not None and not has_events(kind, request.headers):
            who, sequence = _once(request.state.principal.name, topic, idempotency_key), 0
        take = intakes.setdefault(topic, Intake(target, limit_bytes=served.limits.body_bytes)).take
        done: Appended = await run_in_threadpool(take, body, kind, request.headers, producer=who, sequence=sequence)
        return AppendAnswer(position=str(done.position), append=done.number, repeated=done.repeated)

    @router.get("/topics/{topic}/records", dependencies=[needs("read", "topic")], responses=CONTENT)
    async def read(
        topic: str,
        request: Request,
        start: Annotated[str, Query(max_length=10_000)] = "start",
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 1000,
        wait_s: Annotated[float, Query(ge=0, le=MOST_WAIT_S)] = 0,
    ) -> Response:
        """Records after `start` ('start', 'end', a position, or a time), with the position after them.

        With `wait_s`, an answer comes as soon as there is a record. A read of a table ends where an append ends: one
        append larger than `limit` comes whole.
        """
        form = form_of(request)
        source = served.readable(topic)
        here = await run_in_threadpool(place_of, source, start)
        deadline = time.monotonic() + wait_s
        while True:
            number, records, after = await run_in_threadpool(_records, served.log, source, here, limit)
            left = deadline - time.monotonic()
            if records.num_rows or left <= 0:
                about = {"topic": topic, "position": str(after)}
                return await run_in_threadpool(rows_answer, form, records, about, called="records")
            here = after
            await served.pulse.wait(number, left)

    return router


def place_of(topic: Topic, text: str) -> Position:
    """Where 'start', 'end', a position or a time (ISO 8601) is in a topic."""
    if text in ("start", ""):
        return topic.start()
    if text == "end":
        return topic.end()
    if "=" not in text:
        try:
            moment = datetime.fromisoformat(text)
            return topic.at(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        except ValueError:
            raise BadPosition(text=text[:100], why="it is no time either, such as 2026-01-31T12:00:00Z") from None
    given = Position.parse(text).only([topic.name])
    ends = topic.end()
    if not ends.covers(given):
        raise BadPosition(text=text[:100], why=f"it is beyond the end, {ends}")
    return given


def _records(log: Log, topic: Topic, here: Position, limit: int) -> tuple[AppendNumber, pa.Table, Position]:
    """Up to `limit` records; whole appends of a table. The number is one up to which nothing is left out."""
    newest = log.snapshot([topic.name])
    step = log.snapshot([topic.name], after=Snapshot(AppendNumber(0), here), max_rows=limit).position
    records = topic.read(here, step)
    if topic.spec.kind == "stream" and records.num_rows > limit:
        records = records.slice(0, limit)
        step = _after(here, topic.name, records)
    return newest.number, records, step


def _after(here: Position, topic: str, records: pa.Table) -> Position:
    """Where one stands having read these, partition by partition from `here`."""
    ends = here.as_dict().get(topic, {})
    for partition, offset in zip(records[PARTITION].to_pylist(), records[OFFSET].to_pylist(), strict=True):
        ends[partition] = offset + 1
    return Position.of({topic: ends})


def _described(served: Served, topic: Topic) -> dict[str, Any]:
    told = {"start": str(topic.start()), "end": str(topic.end()), "appendable": topic.name in served.topics}
    return {**describe(topic.spec), **told}


def _once(*parts: str) -> Producer:
    """Of a key, the topic and the sender: it makes one append, and never another."""
    return Producer(KEYED + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32], Epoch(0))

"""Webhooks that come in: the signature says who sends, so nobody needs a token for it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from headwater.errors import HeadwaterError, HookNotFound
from headwater.log.protocol import Appended
from headwater.serve.http.metrics import Traffic
from headwater.serve.http.permissions import public
from headwater.serve.http.served import Served


def hook_routes(served: Served, traffic: Traffic) -> APIRouter:
    router = APIRouter(tags=["webhooks"])

    @router.post(
        "/hooks/{hook}",
        dependencies=[public()],
        status_code=204,
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {}}}}},
    )
    async def take(hook: str, request: Request) -> Response:
        """A webhook, signed as Standard Webhooks has it. 204: it is in its topic, durable, once."""
        if hook not in served.hooks:
            raise HookNotFound(hook=hook)
        body = await request.body()
        try:
            done: Appended = await run_in_threadpool(served.hooks[hook].take, body, request.headers)
        except HeadwaterError:
            traffic.webhooks.labels(hook, "refused").inc()
            raise
        traffic.webhooks.labels(hook, "repeated" if done.repeated else "appended").inc()
        return Response(status_code=204)

    return router

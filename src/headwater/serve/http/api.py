"""The whole API of one server, put together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from headwater.capture.intake import Webhooks
from headwater.log.protocol import Log
from headwater.log.topic import Topic
from headwater.serve.access import Access
from headwater.serve.http.asyncapi import asyncapi_routes
from headwater.serve.http.channels import Channels
from headwater.serve.http.commands import command_routes
from headwater.serve.http.covering import Covering
from headwater.serve.http.door import Door
from headwater.serve.http.feeds import feed_routes
from headwater.serve.http.groups import group_routes
from headwater.serve.http.health import health_routes
from headwater.serve.http.hooks import hook_routes
from headwater.serve.http.limits import Connections, Limits
from headwater.serve.http.metrics import Traffic, metric_routes
from headwater.serve.http.people import people_routes
from headwater.serve.http.permissions import Guard, public
from headwater.serve.http.pointreads import PointReads
from headwater.serve.http.problems import PROBLEMS, answer_with_problems
from headwater.serve.http.pulse import Pulse
from headwater.serve.http.queues import queue_routes
from headwater.serve.http.served import Decider, Served
from headwater.serve.http.smallappends import SmallAppends
from headwater.serve.http.sql import sql_routes
from headwater.serve.http.topics import topic_routes
from headwater.serve.http.views import view_routes
from headwater.serve.view import View

NOUNS = (
    health_routes,
    topic_routes,
    view_routes,
    feed_routes,
    group_routes,
    queue_routes,
    sql_routes,
    command_routes,
    people_routes,
    asyncapi_routes,
)


def make_api(
    topics: Mapping[str, Topic],
    views: Mapping[str, View],
    *,
    log: Log | None = None,
    deciders: Mapping[str, Decider] | None = None,
    hooks: Mapping[str, Webhooks] | None = None,
    access: Access | None = None,
    limits: Limits | None = None,
) -> FastAPI:
    """`topics` can be appended to, `views` read. With `log`, all of its topics can be read, its groups and queues used,
    and questions asked in SQL. Without `access`, everybody may do everything: for loopback addresses alone."""
    limits = limits or Limits()
    served = Served(
        topics=topics,
        views=views,
        deciders=deciders or {},
        hooks=hooks or {},
        maybe_log=log,
        guard=Guard(access),
        limits=limits,
        connections=Connections(limits.followers),
        channels=Channels(),
        covering=Covering(),
        maybe_pulse=Pulse(log) if log is not None else None,
    )
    api = FastAPI(title="Headwater", openapi_url=None, docs_url=None, redoc_url=None, responses=PROBLEMS)
    api.state.guard = served.guard
    api.state.connections = served.connections
    traffic = Traffic()
    traffic.watch(served)
    answer_with_problems(api)
    for routes in NOUNS:
        api.include_router(routes(served))
    api.include_router(hook_routes(served, traffic))
    api.include_router(metric_routes(traffic))
    api.add_middleware(PointReads, served=served)
    api.add_middleware(SmallAppends, served=served)
    api.add_middleware(Door, limits=limits, traffic=traffic)

    @api.get("/openapi.json", dependencies=[public()], include_in_schema=False)
    def openapi() -> dict[str, Any]:
        return api.openapi()

    return api

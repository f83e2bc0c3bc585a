"""Is it there, and is it ready?"""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from headwater.serve.http.permissions import public
from headwater.serve.http.served import Served


class Health(BaseModel):
    status: str


def health_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/health", dependencies=[public()])
    def health() -> Health:
        """The server answers."""
        return Health(status="ok")

    @router.get("/ready", dependencies=[public()])
    def ready() -> Health:
        """The log can be read, and every view has a store that answers; otherwise a problem says what is wrong."""
        if served.maybe_log is not None:
            served.log.snapshot([])
        for view in served.views.values():
            view.store.mark()
        return Health(status="ready")

    return router

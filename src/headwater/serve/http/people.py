"""Logging in and out: for people with a browser. Programs use tokens."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, SecretStr
from starlette.concurrency import run_in_threadpool

from headwater.errors import Unauthenticated
from headwater.serve.access.sessions import COOKIE, LASTS_S
from headwater.serve.http.groups import Strict
from headwater.serve.http.permissions import needs_somebody, public, refuse_other_sites
from headwater.serve.http.served import Served

AT_ONCE = 2
"""Passwords that are looked at at the same time: each takes 64 MB and some 50 ms."""


class Login(Strict):
    name: Annotated[str, Field(min_length=1, max_length=200)]
    password: SecretStr = Field(min_length=1, max_length=1000)


class Who(BaseModel):
    principal: str
    csrf: str | None = None
    """To be sent as X-CSRF-Token with every change."""


def people_routes(served: Served) -> APIRouter:
    router = APIRouter(tags=["people"])
    turn = asyncio.Semaphore(AT_ONCE)

    @router.post("/login", dependencies=[public()], response_model=Who)
    async def login(asked: Login, request: Request) -> Response:
        """A session, in a cookie that scripts cannot read."""
        refuse_other_sites(request)
        guard = served.guard
        guard.sessions.may_try(asked.name)
        async with turn:
            try:
                principal = await run_in_threadpool(
                    guard.access.by_password, asked.name, asked.password.get_secret_value()
                )
            except Unauthenticated:
                guard.sessions.was_wrong(asked.name)
                raise
        secret, session = guard.sessions.begin(principal)
        answer = JSONResponse({"principal": principal.name, "csrf": session.csrf})
        answer.set_cookie(COOKIE, secret, max_age=int(LASTS_S), secure=True, httponly=True, samesite="lax")
        return answer

    @router.post("/logout", dependencies=[needs_somebody()], status_code=204)
    def logout(request: Request) -> Response:
        served.guard.sessions.end(request.cookies.get(COOKIE, ""))
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE, secure=True, httponly=True, samesite="lax")
        return answer

    @router.get("/session", dependencies=[needs_somebody()])
    def session(request: Request) -> Who:
        """Who you are here."""
        cookie = request.cookies.get(COOKIE)
        csrf = served.guard.sessions.of(cookie).csrf if cookie and served.guard.on else None
        return Who(principal=request.state.principal.name, csrf=csrf)

    return router

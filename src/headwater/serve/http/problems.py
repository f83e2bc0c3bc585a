"""Every refusal and failure as problem+json (RFC 9457): the error's class, its message, and its fields.

A client finds its own error class by the title. Secrets are taken out of the text, whatever raised it.
"""

from __future__ import annotations

import http
import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from headwater.errors import HeadwaterError, codes
from headwater.serve.redaction import redacted

MEDIA_TYPE = "application/problem+json"
_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string", "description": "The class in headwater.errors."},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, where, what to do next."},
        "fields": {"type": "object"},
    },
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "A problem, in words.", "content": {MEDIA_TYPE: {"schema": _SCHEMA}}},
    422: {"description": "Something in it does not fit.", "content": {MEDIA_TYPE: {"schema": _SCHEMA}}},
}
"""What every route may answer besides what it promises, for its description."""
TITLES = {404: "NotFound", 405: "MethodNotAllowed", 413: "TooLarge", 400: "BadRequest"}


def answer_with_problems(api: FastAPI) -> None:
    api.add_exception_handler(HeadwaterError, _refused)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _plain)


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    fields: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    content = {"type": "about:blank", "title": title, "status": status, "detail": redacted(detail)}
    if fields:
        content["fields"] = fields
    return JSONResponse(content, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def told(error: HeadwaterError) -> JSONResponse:
    status, _ = codes(error)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": "1"} if status in (429, 503) else {}
    return problem(status, type(error).__name__, str(error), fields=_fields(error), headers=headers)


def failed() -> JSONResponse:
    """For what nobody expected: the server's own log has the rest."""
    return problem(500, "ServerFailed", "something went wrong here. The server's log says what.")


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadwaterError)
    return told(error)


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    detail = "; ".join(f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors())
    return problem(422, "BadRequest", detail)


def _plain(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    words = error.detail if error.detail != phrase else f"{phrase}: {request.method} {request.url.path}"
    title = TITLES.get(error.status_code, phrase.title().replace(" ", ""))
    return problem(error.status_code, title, words, headers=dict(error.headers or {}))


def _fields(error: HeadwaterError) -> dict[str, Any]:
    """Those that JSON can carry, without secrets."""
    found: dict[str, Any] = {}
    for name, value in vars(error).items():
        if name.startswith("_"):
            continue
        try:
            found[name] = json.loads(redacted(json.dumps(value)))
        except (TypeError, ValueError):
            continue
    return found

"""The console's pages: one file of HTML, script and style each, no build step, nothing from other hosts."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, RedirectResponse

from headwater.serve.http.permissions import public

STATIC = Path(__file__).with_name("static")
# What the page may do: run its own script, talk to its own server, and nothing else.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
KINDS = {
    "console.js": "text/javascript",
    "console.css": "text/css",
    "login.html": "text/html",
    "login.js": "text/javascript",
}


def mount_pages(api: FastAPI) -> None:
    @api.get("/", include_in_schema=False, dependencies=[public()])
    def home() -> RedirectResponse:
        return RedirectResponse("/console/")

    @api.get("/console/", include_in_schema=False, dependencies=[public()])
    def page() -> FileResponse:
        return FileResponse(STATIC / "console.html", media_type="text/html", headers=HEADERS)

    for name, kind in KINDS.items():
        _static(api, name, kind)


def _static(api: FastAPI, name: str, kind: str) -> None:
    @api.get(f"/console/{name}", include_in_schema=False, dependencies=[public()])
    def file() -> FileResponse:
        return FileResponse(STATIC / name, media_type=kind, headers=HEADERS)

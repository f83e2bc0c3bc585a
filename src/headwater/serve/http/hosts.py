"""A server that takes requests from anybody on this machine takes none that a page from elsewhere makes a browser send.

A page can make its own name resolve to 127.0.0.1 (DNS rebinding): to the browser, this server is then that page's own
site, and its scripts may read all answers. But the browser says that name as the `Host`. So as long as nobody has to
say who they are, only a loopback address, `localhost`, or a name that was given is answered. With tokens and users on,
such a page has neither, and cookies belong to our own name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.errors import ForeignHost
from headwater.serve.access import Access
from headwater.serve.http.problems import told

LOCAL = "localhost"


class Hosts:
    def __init__(self, app: ASGIApp, *, access: Access | None, names: Sequence[str] = ()) -> None:
        self._app = app
        self._access = access
        self._names = frozenset({LOCAL, *names})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = next((value.decode("latin-1") for name, value in scope.get("headers", ()) if name == b"host"), None)
        if host is None or self._is_ours(host) or (self._access is not None and self._access.on):
            await self._app(scope, receive, send)
        else:  # without one it is no browser
            await told(ForeignHost(host=host[:100]))(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        name = name_in(host)
        return name in self._names or _is_loopback(name)


def name_in(host: str) -> str:
    """Of `shop.test:8080`, `[::1]:8080` and the like: what is before the port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[")
    return host.partition(":")[0].lower()


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False

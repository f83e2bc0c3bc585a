"""The HTTP server in a thread: bound before it says so, stopped when asked."""

from __future__ import annotations

import ipaddress
import socket
import threading

import uvicorn
from fastapi import FastAPI

from headwater.errors import UsageError


class Server:
    def __init__(self, api: FastAPI, address: str) -> None:
        self._socket = _bind(address)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://{host}:{port}"
        config = uvicorn.Config(api, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()


def _bind(address: str) -> socket.socket:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise UsageError(what=f"{address!r} is not HOST:PORT", do="Use e.g. 127.0.0.1:8080")
    try:
        loopback = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise UsageError(
            what=f"{host} is not a loopback address, and there is no authentication yet",
            do="Bind to 127.0.0.1 and put a proxy that authenticates in front",
        )
    bound = socket.socket(socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1" if host == "localhost" else host, int(port)))
        bound.listen(128)
    except (OSError, OverflowError) as error:
        bound.close()
        raise UsageError(what=f"cannot listen on {address}: {error}", do="Choose another port with --http") from None
    return bound

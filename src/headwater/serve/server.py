"""The HTTP server in a thread: bound before it says so, stopped when asked.

On a loopback address it takes requests from anybody, under its own names, until the first token or user is made. On any
other address it starts only if there is one, and then demands one of every request.
"""

from __future__ import annotations

import logging
import resource
import socket
import ssl
import sys
import threading

import uvicorn
from fastapi import FastAPI

from headwater.errors import UsageError
from headwater.serve.access import Access
from headwater.serve.address import Address
from headwater.serve.http.hosts import Hosts
from headwater.serve.http.malformed import Protocol
from headwater.serve.redaction import Redaction

BACKLOG = 1024
FILES = 8192
LOGGERS = ("headwater.http", "uvicorn.error")


class Server:
    def __init__(self, api: FastAPI, address: str, *, access: Access | None = None) -> None:
        self._api = api
        where = Address.parse(address)
        tls = where.tls
        self._socket = _bind(where, access)
        host, port = self._socket.getsockname()[:2]
        self.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        _say_without_secrets()
        try:
            config = uvicorn.Config(
                Hosts(api, access=access, names=where.names) if where.loopback else api,
                http=Protocol,
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
                ssl_certfile=str(tls.certificate) if tls else None,
                ssl_keyfile=str(tls.key) if tls else None,
            )
            config.load()
        except (OSError, ssl.SSLError) as error:
            self._socket.close()
            raise UsageError(
                what=f"cannot use the certificate {tls.certificate if tls else ''}: {error}",
                do="Give a certificate and its key, both in PEM form",
            ) from None
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="http", daemon=True
        )

    def start(self) -> None:
        _allow_files(FILES)
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._api.state.connections.end_all()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()


def _allow_files(wanted: int) -> None:
    """A follower is an open file, and a process begins with some thousand: have more, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _say_without_secrets() -> None:
    """What the server has to say goes to stderr, a line a message, past the one filter."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(handler.formatter, Redaction) for handler in logger.handlers):
            handler = logging.StreamHandler(sys.stderr)
            handler.setFormatter(Redaction("%(levelname)s %(name)s: %(message)s"))
            logger.addHandler(handler)
            logger.propagate = False


def _bind(where: Address, access: Access | None) -> socket.socket:
    if not where.loopback:
        if access is None or not access.anybody:
            raise UsageError(
                what=f"{where.host} is not a loopback address, and nobody is known here who could be let in",
                do="Make a token first: headwater token create NAME --allow '* *'; or bind to 127.0.0.1",
            )
        access.demand()
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    # Said to be TCP: else asyncio does not switch Nagle's algorithm off, and an answer waits 40 ms to be acknowledged.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((where.host, where.port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise UsageError(what=f"cannot listen on {where}: {error}", do="Choose another port with --http") from None
    return bound

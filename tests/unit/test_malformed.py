"""What is no request is refused in words of ours, too, over a real socket."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.unit.http_shop import Shop


@pytest.mark.parametrize(
    "request_line",
    [b"GET /topics/clicks/records?start=" + b"x" * 70_000 + b" HTTP/1.1", b"nothing of the kind", b"GET / HTTP/9"],
    ids=["too long", "no request", "no version"],
)
def test_what_is_no_request_is_a_problem_and_the_next_one_is_answered(tmp_path: Path, request_line: bytes) -> None:
    shop = Shop(tmp_path / "log")
    server = shop.server()
    try:
        status, headers, body = ask(server.url, request_line)
        assert status == 400
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["title"] == "BadRequest"
        assert ask(server.url, b"GET /health HTTP/1.1")[0] in (200, 404)
    finally:
        server.stop()
        shop.close()


def ask(url: str, request_line: bytes) -> tuple[int, dict[str, str], bytes]:
    where = urlsplit(url)
    with socket.create_connection((where.hostname, where.port or 80), timeout=30) as connection:
        connection.sendall(request_line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body

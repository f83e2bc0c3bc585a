"""A client that costs little: HTTP/1.1 on sockets that stay open, so that what is measured is the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Ask = Callable[[int], bytes]
"""The bytes of the n-th request."""


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def post(path: str, body: bytes, kind: str) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def load(port: int, ask: Ask, *, connections: int, seconds: float) -> dict[str, Any]:
    """Requests a second and how long each took, with so many under way at once; the first fifth warms up."""
    took = asyncio.run(_load(port, ask, connections, seconds))
    p50, p99 = np.percentile(took, [50, 99])
    return {
        "per_s": round(len(took) / (seconds * 0.8)),
        "p50_ms": round(float(p50) * 1000, 2),
        "p99_ms": round(float(p99) * 1000, 2),
    }


async def _load(port: int, ask: Ask, connections: int, seconds: float) -> list[float]:
    began = time.monotonic()
    warm, end = began + seconds / 5, began + seconds
    numbers = iter(range(10**9))
    took: list[float] = []

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (start := time.monotonic()) < end:
            writer.write(ask(next(numbers)))
            await answer(reader)
            if start >= warm:
                took.append(time.monotonic() - start)
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return took


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The body of a good answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
    body = await reader.readexactly(length)
    if not head.startswith(b"HTTP/1.1 2"):
        raise RuntimeError(f"{lines[0].decode()}: {body[:500].decode()}")
    return body

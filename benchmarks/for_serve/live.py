"""How soon what was appended can be read, and how soon many followers hear of it, over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from urllib.parse import quote

import numpy as np

from for_serve.load import answer, get, post
from for_serve.ours import VIEW
from for_serve.rows import row

LOADS_PER_S = 20
NDJSON = "application/x-ndjson"
CHANGES = f"/views/{VIEW}/changes"


def freshness(port: int, *, rate: int, seconds: float) -> dict[str, float]:
    """From before a POST of some records to the answer of a GET that waits for just them."""
    took = asyncio.run(_freshness(port, rate // LOADS_PER_S, seconds))
    p50, p99 = np.percentile(took[len(took) // 5 :], [50, 99])  # the first fifth warms up
    return {"p50_s": round(float(p50), 3), "p99_s": round(float(p99), 3)}


async def _freshness(port: int, each: int, seconds: float) -> list[float]:
    start = time.monotonic()

    async def one(number: int) -> float:
        await asyncio.sleep(max(0.0, start + number / LOADS_PER_S - time.monotonic()))
        began = time.monotonic()
        first = number * each
        body = "\n".join(json.dumps(row((first + more) % 100_000, number)) for more in range(each)).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(post("/topics/items/records", body, NDJSON))
        token = json.loads(await answer(reader))["position"]
        writer.write(get(f"/views/{VIEW}?key={first % 100_000}&after={quote(token)}"))
        found = json.loads(await answer(reader))["rows"][0]
        writer.close()
        assert found["stock"] >= number, "a stale read"
        return time.monotonic() - began

    return await asyncio.gather(*(one(number) for number in range(round(seconds * LOADS_PER_S))))


def followers(port: int, *, count: int, changes: int) -> dict[str, Any]:
    """From before a POST until each of so many followers of the view has heard of it."""
    took = asyncio.run(_followers(port, count, changes))
    p50, p99 = np.percentile(took, [50, 99])
    return {"followers": count, "heard": len(took), "p50_s": round(float(p50), 3), "p99_s": round(float(p99), 3)}


async def _cursor(port: int) -> str:
    """Where the view is now: the id of its state, which is told first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**28)
    writer.write(get(CHANGES))
    while not (line := await reader.readline()).startswith(b"id:"):
        assert line, "the feed has ended"
    writer.close()
    return line.removeprefix(b"id:").strip().decode()


async def _followers(port: int, count: int, changes: int) -> list[float]:
    sent: dict[str, float] = {}
    took: list[float] = []
    ready = 0

    begin = await _cursor(port)

    async def follow() -> None:
        nonlocal ready
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        writer.write(get(CHANGES, f"Last-Event-ID: {begin}"))
        await reader.readuntil(b"\r\n\r\n")
        ready += 1
        heard: set[str] = set()
        while len(heard) < changes:
            line = await reader.readline()
            for mark in sent.keys() - heard:
                if mark.encode() in line:
                    heard.add(mark)
                    took.append(time.monotonic() - sent[mark])
        writer.close()

    async def send() -> None:
        while ready < count:
            await asyncio.sleep(0.05)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(changes):
            mark = f"change-{number}-of-many"
            sent[mark] = time.monotonic()
            body = json.dumps({**row(number), "name": mark}).encode()
            writer.write(post("/topics/items/records", body, "application/json"))
            await answer(reader)
            await asyncio.sleep(max(0.0, sent[mark] + 2 - time.monotonic()))
        writer.close()

    async with asyncio.timeout(120 + 3 * changes):
        await asyncio.gather(send(), *(follow() for _ in range(count)))
    return took

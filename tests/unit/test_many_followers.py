"""Five hundred live followers of one view: all are told of every change, soon."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

import pytest

from tests.unit.http_shop import Shop, click

pytestmark = pytest.mark.slow

FOLLOWERS = 500
ROUNDS = 10


def test_five_hundred_followers_are_told_of_every_change_within_a_second(shop: Shop) -> None:
    server = shop.server()
    where = urlsplit(server.url)

    async def run() -> list[float]:
        told = [0] * FOLLOWERS
        changed = asyncio.Condition()

        async def follow(number: int) -> None:
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(b"GET /views/by_page/changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                async for line in reader:
                    if line.startswith(b"event: "):
                        told[number] += 1
                        async with changed:
                            changed.notify_all()
            finally:
                writer.close()

        async def all_have(count: int) -> None:
            async with changed:
                await asyncio.wait_for(changed.wait_for(lambda: min(told) >= count), 60)

        tasks = [asyncio.create_task(follow(number)) for number in range(FOLLOWERS)]
        try:
            await all_have(1)
            took = []
            for round_ in range(ROUNDS):
                shop.clicks.append([click(round_)])
                began = time.monotonic()
                await asyncio.to_thread(shop.count)
                await all_have(round_ + 2)
                took.append(time.monotonic() - began)
            assert told == [ROUNDS + 1] * FOLLOWERS
            return took
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    try:
        took = sorted(asyncio.run(run()))
    finally:
        server.stop()
    assert took[len(took) // 2] < 1.0, took

"""A hundred clients that write and read their own writes, over HTTP: no answer is stale."""

from __future__ import annotations

import asyncio
import threading

import pytest

import headwater as hw
from tests.unit.http_shop import Shop, click

pytestmark = pytest.mark.slow

CLIENTS, ROUNDS = 100, 5


def test_a_hundred_clients_read_what_they_wrote(shop: Shop) -> None:
    server = shop.server()
    over = threading.Event()

    def count() -> None:
        while not over.wait(0.02):
            shop.count()

    async def one(client: hw.AsyncClient, number: int) -> list[int]:
        found = []
        for _ in range(ROUNDS):
            token = await client.topic("clicks").append([click(number, f"/{number}")])
            row = await client.view("by_page").get(f"/{number}", after=token)
            found.append(0 if row is None else row["views"])
        return found

    async def run() -> list[list[int]]:
        async with hw.AsyncClient(server.url, timeout_s=60) as client:
            return await asyncio.gather(*(one(client, number) for number in range(CLIENTS)))

    counting = threading.Thread(target=count)
    counting.start()
    try:
        found = asyncio.run(run())
    finally:
        over.set()
        counting.join()
        server.stop()
    assert found == [list(range(1, ROUNDS + 1))] * CLIENTS

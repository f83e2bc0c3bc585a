"""Redis keeps the contract of stores, on a real server; and what is its own: keys, forgetting, eviction."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator

import pytest
import redis

from headwater.errors import BadStore, StoreFailed, StoreMoved
from headwater.serve.store import NOTHING
from headwater.serve.stores.redis import RedisStore
from headwater.testing.redis import RedisServer, program
from headwater.testing.stores_contract import SERVED, Place, StoreContract, changes, mark, plainly, row

pytestmark = pytest.mark.slow
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    if program() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("there is no redis-server")
    with RedisServer(password="Tr0ub4dor") as running:
        yield running


@pytest.fixture
def prefix() -> str:
    return f"pages[{next(_numbers)}]*"


@pytest.fixture
def place(server: RedisServer, prefix: str) -> Place:
    return Place(lambda served: RedisStore(server.url(), prefix, served, name="redis:"))


class TestRedisStore(StoreContract):
    no_bags = "a cache is asked by key"


def test_keys_are_text_that_nobody_can_mistake(server: RedisServer) -> None:
    store = RedisStore(server.url(1), "by_page", SERVED, name="redis:")
    store.apply(changes(row("/a b", 1), row("x:y%", 2), row(None, 3), row("%", 4)), mark(1))
    client = redis.Redis.from_url(server.url(1), decode_responses=True)
    keys = set(client.keys("by_page:*"))
    assert keys == {"by_page:/a b", "by_page:x%3Ay%25", "by_page:%", "by_page:%25"}
    assert json.loads(str(client.get("by_page:x%3Ay%25"))) == {"page": "x:y%", "n": 2}
    client.close()
    store.close()


def test_what_the_server_forgets_it_forgets_with_the_mark(server: RedisServer) -> None:
    store = RedisStore(server.url(2), "v", SERVED, name="redis:")
    store.apply(changes(row("/a", 1)), mark(1))
    client = redis.Redis.from_url(server.url(2))
    client.flushdb()
    with pytest.raises(StoreMoved, match="holds append 0, not 1"):
        store.apply(changes(row("/b", 1)), mark(2), after=mark(1))
    assert store.mark() == NOTHING
    store.apply(changes(row("/a", 1), row("/b", 1)), mark(2), after=NOTHING)
    assert plainly(*store.read()[0].to_pylist()) == plainly(row("/a", 1), row("/b", 1))
    client.close()
    store.close()


def test_killed_and_started_again_it_has_all_it_took(server: RedisServer) -> None:
    store = RedisStore(server.url(3), "v", SERVED, name="redis:")
    for number in range(1, 20):
        gone = [row("/a", number - 1, -1)] if number > 1 else []
        store.apply(changes(row("/a", number), *gone), mark(number))
    server.kill()
    with pytest.raises(StoreFailed) as failed:
        store.mark()
    assert "Tr0ub4dor" not in str(failed.value)
    server.start()
    assert store.get(["/a"]) == ({"page": "/a", "n": 19}, mark(19))
    store.close()


def test_a_server_that_evicts_is_refused(server: RedisServer) -> None:
    client = redis.Redis.from_url(server.url())
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(BadStore, match="the server evicts keys \\(allkeys-lru\\)"):
            RedisStore(server.url(), "v", SERVED, name="redis:")
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.close()


def test_a_wrong_password_is_told_without_it(server: RedisServer) -> None:
    url = f"redis://:guessed-wrong@127.0.0.1:{server.port}/0"
    with pytest.raises(StoreFailed) as failed:
        RedisStore(url, "v", SERVED, name="redis://127.0.0.1")
    assert "guessed-wrong" not in str(failed.value)


def test_keys_of_others_that_begin_alike_are_left_alone(server: RedisServer) -> None:
    client = redis.Redis.from_url(server.url(4))
    client.set("v:more:x", "somebody's")
    store = RedisStore(server.url(4), "v", SERVED, name="redis:")
    store.apply(changes(row("/a", 1)), mark(1))
    assert store.read()[0].num_rows == 1
    store.clear()
    assert client.get("v:more:x") == b"somebody's"
    client.close()
    store.close()

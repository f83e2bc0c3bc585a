"""A view's rows in Redis, a cache by key: each row as JSON under `PREFIX:KEY`, the mark under `headwater:PREFIX`.

    page = '/a'                ->  by_page:/a
    (day, user) = (2026-01-02, 7)  ->  by_page:2026-01-02:7      ':' and '%' in a value are written %3A, %25; null is %

Rows and mark change in one MULTI. What Redis forgets (a restart without its file, FLUSHALL), it forgets with the mark,
and it is filled again from the log; so it is never staler than the store's lag. A server that evicts keys is refused:
it would forget rows and keep the mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa

from headwater.errors import BadStore, StoreFailed, StoreMoved, StoreTaken
from headwater.serve.store import NOTHING, Mark, Served, expect
from headwater.serve.stores.keys import typed_key
from headwater.serve.stores.net import net_by_key
from headwater.serve.stores.plainvalues import told, untold
from headwater.serve.stores.secrets import without

if TYPE_CHECKING:
    from redis import Redis

TIMEOUT_S = 10.0
AT_ONCE = 1000
TRIES = 10
_SAFE = "/-_.~!*'() ,;=@&+$?#[]{}|<>^\\\""


class RedisStore:
    def __init__(self, url: str, prefix: str, served: Served, *, name: str) -> None:
        if not served.key:
            do = "Declare the view with key='...' if a column tells its rows apart"
            raise BadStore(store=name, why=f"rows of {served.view!r} have no key, and a cache is asked by key", do=do)
        self._url = url
        self._prefix = prefix
        self._served = served
        self._name = name
        self._marks = f"headwater:{prefix}"
        self._redis = self._client()
        try:
            with self._translated():
                self._refuse_eviction()
                if self._version() != served.version:
                    self._clear(None)
        except BaseException:
            self.close()
            raise

    def _client(self) -> Redis:
        try:
            import redis
        except ModuleNotFoundError:
            do = "Install it: pip install 'headwater[redis]'"
            raise BadStore(store=self._name, why="the package redis is not installed", do=do) from None
        try:
            return redis.Redis.from_url(self._url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
        except ValueError as error:
            raise BadStore(
                store=self._name, why=without(self._url, str(error)), do="Write redis://HOST:PORT/0"
            ) from None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import redis

        try:
            yield
        except redis.WatchError:
            raise StoreMoved(store=self._name, expected=-1, found=self.mark().number) from None
        except redis.RedisError as error:
            raise StoreFailed(store=self._name, why=without(self._url, f"{type(error).__name__}: {error}")) from error

    def _refuse_eviction(self) -> None:
        memory: dict[str, Any] = self._redis.info("memory")
        policy = memory.get("maxmemory_policy", "noeviction")
        if memory.get("maxmemory") and str(policy).startswith("allkeys"):
            why = f"the server evicts keys ({policy}): rows would be missing, and nobody would know"
            do = "Use one with maxmemory-policy noeviction, or a volatile one"
            raise BadStore(store=self._name, why=why, do=do)

    def _version(self) -> str | None:
        found = self._redis.hget(self._marks, "version")
        return found.decode() if isinstance(found, bytes) else None

    def mark(self) -> Mark:
        with self._translated():
            return self._parsed(self._redis.hmget(self._marks, ["version", "mark"]))

    def _parsed(self, found: Sequence[Any]) -> Mark:
        version, text = found
        if version is None:
            return NOTHING
        if version.decode() != self._served.version:
            raise StoreTaken(store=self._name, by=version.decode())
        return Mark.parse(text)

    def apply(self, changes: pa.Table, mark: Mark, *, after: Mark | None = None) -> None:
        key = self._served.key
        some = net_by_key(changes, self._served.schema, key)
        gone = self._keys(some.gone)
        rows = [json.dumps(row, ensure_ascii=False) for row in told(some.here)]
        here = dict(zip(self._keys(some.here), rows, strict=True))
        with self._translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.watch(self._marks)  # type: ignore[no-untyped-call]
            expect(self._parsed(pipe.hmget(self._marks, ["version", "mark"])), after, store=self._name)
            pipe.multi()
            for some_gone in _in_parts(gone):
                pipe.delete(*some_gone)
            for some_here in _in_parts(here.items()):
                pipe.mset(dict(some_here))
            self._set_mark(pipe, mark)
            pipe.execute()

    def _set_mark(self, pipe: Any, mark: Mark) -> None:
        pipe.hset(self._marks, mapping={"version": self._served.version, "mark": str(mark)})

    def _keys(self, rows: pa.Table) -> list[str]:
        columns = [[_part(row[name]) for row in told(rows.select([name]))] for name in self._served.key]
        return [":".join((self._prefix, *parts)) for parts in zip(*columns, strict=True)]

    def _found(self) -> dict[str, None]:
        """The keys of our rows: others may begin alike."""
        found = self._redis.scan_iter(match=f"{_literally(self._prefix)}:*", count=AT_ONCE)
        texts = (key.decode() for key in found if isinstance(key, bytes))
        colons = self._prefix.count(":") + len(self._served.key)
        return dict.fromkeys(key for key in texts if key.count(":") == colons)

    def clear(self) -> None:
        with self._translated():
            self._clear(self._served.version)

    def _clear(self, version: str | None) -> None:
        """Of that version, or whichever is there. Rows go first, under a mark that nobody goes on from."""
        with self._redis.pipeline(transaction=True) as pipe:
            pipe.watch(self._marks)  # type: ignore[no-untyped-call]
            found = self._version()
            if version is not None and found is not None and found != version:
                raise StoreTaken(store=self._name, by=found)
            keys = list(self._found())
            pipe.multi()
            for some in _in_parts(keys):
                pipe.delete(*some)
            self._set_mark(pipe, NOTHING)
            pipe.execute()

    def read(self, *, limit: int | None = None) -> tuple[pa.Table, Mark]:
        """Read between two looks at the mark; if that moved meanwhile, once more."""
        for _ in range(TRIES):
            before = self.mark()
            with self._translated():
                keys = list(islice(self._found(), limit))
                values: list[Any] = [value for some in _in_parts(keys) for value in self._redis.mget(some)]
            if self.mark() == before and None not in values:
                return untold([json.loads(value) for value in values], self._served.schema), before
        raise StoreFailed(store=self._name, why=f"it changed {TRIES} times while it was read")

    def get(self, key: Sequence[Any]) -> tuple[dict[str, Any] | None, Mark]:
        (name,) = self._keys(typed_key(self._served, key))
        with self._translated(), self._redis.pipeline(transaction=True) as pipe:
            pipe.get(name)
            pipe.hmget(self._marks, ["version", "mark"])
            value, found = pipe.execute()
        rows = untold([json.loads(value)], self._served.schema).to_pylist() if value is not None else [None]
        return rows[0], self._parsed(found)

    def version(self) -> int:
        return self.mark().number

    def close(self) -> None:
        self._redis.close()


def _part(value: Any) -> str:
    return "%" if value is None else quote(value if isinstance(value, str) else json.dumps(value), safe=_SAFE)


def _literally(prefix: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]^\\" else letter for letter in prefix)


def _in_parts(things: Any) -> Iterator[list[Any]]:
    left = iter(things)
    while some := list(islice(left, AT_ONCE)):
        yield some

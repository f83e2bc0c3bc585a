"""The peer: the same rows in PostgreSQL, served by FastAPI and psycopg as PostgREST's nearest relative in Python.

Connections are kept open, statements are prepared by psycopg after their fifth use, and handlers are coroutines.
Uvicorn runs on uvloop and httptools, without an access log, in one process: as ours does.
"""

from __future__ import annotations

import asyncio
import threading
from multiprocessing.connection import Connection
from typing import Any

import uvicorn

from for_serve.rows import COLUMNS, rows
from headwater.testing.postgres import PostgresServer

POOL = 8


def make_api(url: str) -> Any:
    import psycopg
    from fastapi import FastAPI
    from psycopg.rows import dict_row

    idle: asyncio.Queue[Any] = asyncio.Queue()
    api = FastAPI()

    @api.get("/items/{item_id}")
    async def item(item_id: int) -> dict[str, Any]:
        if idle.empty() and api.state.made < POOL:
            api.state.made += 1
            made = await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row)
            idle.put_nowait(made)
        connection = await idle.get()
        try:
            found = await connection.execute("SELECT * FROM items WHERE item_id = %s", (item_id,))
            return {"rows": await found.fetchall()}
        finally:
            idle.put_nowait(connection)

    api.state.made = 0
    return api


def serve_peer(count: int, pipe: Connection) -> None:
    """Tells its port, and serves until told to stop."""
    import psycopg

    with PostgresServer() as postgres:
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            connection.execute(f"CREATE TABLE items ({columns}, PRIMARY KEY (item_id))")
            with connection.cursor().copy("COPY items FROM STDIN") as copy:
                for row in rows(count):
                    copy.write_row(tuple(row.values()))
            connection.execute("ANALYZE items")
        config = uvicorn.Config(make_api(postgres.url()), port=0, log_level="error", access_log=False, lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.05)
        pipe.send(("word", server.servers[0].sockets[0].getsockname()[1]))
        pipe.recv()
        server.should_exit = True
        thread.join()

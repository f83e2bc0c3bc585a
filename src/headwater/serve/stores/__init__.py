"""Where views are served from, a file for each kind, all behind `serve/store.py`. Here: what a user says of them."""

from headwater.serve.stores.destinations import (
    Delta,
    Destination,
    DuckDB,
    Email,
    Parquet,
    Postgres,
    Redis,
    Search,
    Stdout,
    Webhook,
)
from headwater.serve.stores.mail import Server
from headwater.serve.stores.webhook import new_secret

__all__ = [
    "Delta",
    "Destination",
    "DuckDB",
    "Email",
    "Parquet",
    "Postgres",
    "Redis",
    "Search",
    "Server",
    "Stdout",
    "Webhook",
    "new_secret",
]

"""The rows that both sides serve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

COLUMNS = {"item_id": "bigint", "name": "text", "price": "double precision", "stock": "bigint"}
"""As PostgreSQL calls them."""
TYPES = {"item_id": "int64", "name": "string", "price": "float64", "stock": "int64"}
"""As we do."""


def row(number: int, stock: int = 0) -> dict[str, Any]:
    return {"item_id": number, "name": f"item number {number}", "price": number % 997 / 10, "stock": stock}


def rows(count: int) -> Iterator[dict[str, Any]]:
    return (row(number, number % 100) for number in range(count))

"""The mistake: each client writes to the database, then to the cache. Nobody says whose second write comes last."""

import random
from pathlib import Path

from prices import Cache, Database, Row, pause, race


def until_they_disagree(folder: Path, *, most_rounds: int = 200) -> tuple[int, dict[str, tuple[Row, Row]]]:
    """How many rounds it took, and by item what the database says and what the cache says; nothing if they never
    did."""
    database, cache = Database(folder / "both.db"), Cache()
    chosen = random.Random(0)

    def write(item: str, price: int) -> None:
        row = database.set(item, price)
        pause(chosen)  # here the other client may pass by
        cache.set(item, row)

    for number in range(1, most_rounds + 1):
        race(write, seed=number)
        true, cached = database.all(), cache.all()
        if true != cached:
            return number, {item: (true[item], cached[item]) for item in true if true[item] != cached[item]}
    return most_rounds, {}

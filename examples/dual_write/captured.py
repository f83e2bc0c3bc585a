"""The cure: clients write to the database alone. It is captured into a topic, and the cache follows the topic.

The order of the topic is the order in which the database committed, so the cache comes to say what the database says.
It may be some milliseconds behind; it is never wrong in another way, and it catches up.
"""

import threading
import time
from pathlib import Path

from prices import Cache, Database, race

import headwater as hw

CATCH_UP_S = 30.0


def never_disagree(folder: Path, *, rounds: int = 50) -> tuple[int, int]:
    """After how many rounds, of all, cache and database said the same; and how often a price went back in the cache."""
    database, cache = Database(folder / "captured.db"), Cache()
    with hw.App("prices", log=f"file:{folder / 'log'}") as app:
        prices = app.capture(f"sqlite:{database.path}", tables=["prices"])["prices"]
        ended = threading.Event()
        threads = [
            threading.Thread(target=app.run, kwargs={"only": "captures"}),
            threading.Thread(target=follow, args=(prices, cache, ended)),
        ]
        for thread in threads:
            thread.start()
        agreed = 0
        for number in range(1, rounds + 1):
            race(database.set, seed=number)
            agreed += comes_to_agree(database, cache)
        ended.set()
        app.stop()
        for thread in threads:
            thread.join()
    return agreed, cache.went_back


def follow(prices: hw.Topic, cache: Cache, ended: threading.Event) -> None:
    """What the topic tells, in its order, into the cache."""
    here = None
    while not ended.is_set():
        for batch, after in prices.follow(here, timeout_s=0.1):
            for row in batch.to_pylist():
                cache.set(row["item"], (row["price"], row["version"]))
            here = after


def comes_to_agree(database: Database, cache: Cache) -> bool:
    deadline = time.monotonic() + CATCH_UP_S
    while database.all() != cache.all():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True

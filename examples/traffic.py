"""A little traffic for the demo: users once, then clicks over HTTP, as any application would send them.

Each batch has a producer and a sequence, so that one that is sent again after a cut counts once.
"""

import argparse
import contextlib
import json
import random
import time
import urllib.error
import urllib.request
import uuid
from datetime import UTC, datetime

PAGES = [
    "/",
    "/search",
    "/cart",
    "/checkout",
    "/help",
    "/news",
    "/shoes",
    "/shirts",
    "/hats",
    "/bags",
    "/sale",
    "/login",
]
COUNTRIES = ["de", "fr", "es", "it", "pl", "nl", "us", "br", "jp", "in"]
USERS = 5_000


def send(url: str, rows: list[dict[str, object]], producer: str, sequence: int) -> None:
    """Until it is acknowledged: the server may be starting, or gone for a moment."""
    body = "\n".join(json.dumps(row) for row in rows).encode()
    address = f"{url}?producer={producer}&sequence={sequence}"
    while True:
        request = urllib.request.Request(address, body, {"content-type": "application/x-ndjson"})
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise SystemExit(f"traffic: {error.read().decode()}") from None
            time.sleep(0.2)
        except OSError:
            time.sleep(0.2)


def click(chance: random.Random) -> dict[str, object]:
    page = PAGES[min(int(chance.expovariate(0.35)), len(PAGES) - 1)]
    return {"user_id": chance.randrange(USERS), "page": page, "at": datetime.now(UTC).isoformat()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--url", default="http://127.0.0.1:8080")
    options.add_argument("--rate", type=int, default=200, help="clicks a second")
    options.add_argument("--seconds", type=float, default=3600, help="stop after so long")
    given = options.parse_args()
    chance = random.Random()
    people: list[dict[str, object]] = [{"user_id": n, "country": COUNTRIES[n % len(COUNTRIES)]} for n in range(USERS)]
    send(f"{given.url}/topics/users/records", people, "demo-users", 0)  # the same every time: appended once
    producer, sequence, start = f"traffic-{uuid.uuid4().hex[:8]}", 0, time.monotonic()
    while time.monotonic() - start < given.seconds:
        rows = [click(chance) for _ in range(max(1, given.rate // 10))]
        send(f"{given.url}/topics/clicks/records", rows, producer, sequence)
        sequence += 1
        time.sleep(max(0.0, start + sequence / 10 - time.monotonic()))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()

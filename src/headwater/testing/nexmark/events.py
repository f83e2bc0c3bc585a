"""Nexmark's events, seeded: people, their auctions, and the bids on them, as three typed topics.

What the reference generator does is kept, because the queries' costs hang on it: of 50 events one is a person, three
are auctions, 46 are bids; half of the bids are on one hot auction, three quarters are by one hot bidder, and three
quarters of the auctions by one hot seller; ids run from 1000; a bid may come a little before its auction, an auction
before its seller. Times are whole milliseconds, in microseconds: Flink's event time has no more, and answers are
compared.

Events are drawn in chunks of a fixed size, each from a generator of its own, and cut afterwards. So an event depends on
the seed and its number alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

PER_EPOCH = 50
PERSONS, AUCTIONS, BIDS = 1, 3, 46
"""Of each epoch, in this order."""

CHUNK = 1_000 * PER_EPOCH
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
START = datetime(2026, 6, 30, 23, 59, 50, tzinfo=UTC)
"""Ten seconds before midnight: also a short run has two days, hours and minutes to group by."""

ACTIVE_PEOPLE = 1_000
IN_FLIGHT = 100
"""Auctions that bids go to, before the newest; they are open for twice the time that so many take to come, at most."""
LEAD = 10
"""How far a reference may run ahead of what it refers to."""
HOT_EVERY = 100
"""Each hundredth auction, seller, bidder becomes the hot one."""

HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
SIDE_KEYS = 10_000

FIRST_NAMES = ["Ada", "Alan", "Barbara", "Dana", "Edgar", "Frances", "Grace", "Jim", "Leslie", "Michael", "Pat"]
LAST_NAMES = ["Adams", "Bell", "Carter", "Diaz", "Evans", "Ford", "Gray", "Hunt", "Irving"]
CITIES = [
    "Bend",
    "Boise",
    "Cheyenne",
    "Kent",
    "Los Angeles",
    "Phoenix",
    "Portland",
    "Redmond",
    "San Francisco",
    "Seattle",
]
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]

TIME = pa.timestamp("us", "UTC")


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


PERSON = _schema(
    id=pa.int64(),
    name=pa.string(),
    email_address=pa.string(),
    credit_card=pa.string(),
    city=pa.string(),
    state=pa.string(),
    date_time=TIME,
    extra=pa.string(),
)
AUCTION = _schema(
    id=pa.int64(),
    item_name=pa.string(),
    description=pa.string(),
    initial_bid=pa.int64(),
    reserve=pa.int64(),
    date_time=TIME,
    expires=TIME,
    seller=pa.int64(),
    category=pa.int64(),
    extra=pa.string(),
)
BID = _schema(
    auction=pa.int64(),
    bidder=pa.int64(),
    price=pa.int64(),
    channel=pa.string(),
    url=pa.string(),
    date_time=TIME,
    extra=pa.string(),
)
SIDE_INPUT = _schema(key=pa.int64(), value=pa.string())
TOPICS = {"person": PERSON, "auction": AUCTION, "bid": BID, "side_input": SIDE_INPUT}


@dataclass(frozen=True)
class Events:
    """Events `first` to `end` (exclusive), each topic's in the order of their numbers and so of their times."""

    first: int
    end: int
    person: pa.Table
    auction: pa.Table
    bid: pa.Table


def events(
    count: int, *, seed: int = 1, rate: int = 10_000, start: datetime = START, block: int = CHUNK
) -> Iterator[Events]:
    """The first `count` events in blocks of so many; `rate` is how many there are in a second of event time."""
    clock = _Clock(rate, int(start.timestamp() * 1_000) * 1_000)
    for first in range(0, count, block):
        end = min(first + block, count)
        pieces = [
            _cut(_chunk(seed, at, clock), at * CHUNK, first, end) for at in range(first // CHUNK, -(-end // CHUNK))
        ]
        person, auction, bid = (pa.concat_tables(tables) for tables in zip(*pieces, strict=True))
        yield Events(first, end, person, auction, bid)


def tables(count: int, *, seed: int = 1, rate: int = 10_000, start: datetime = START) -> dict[str, pa.Table]:
    """All topics of the first `count` events by name, also the side input."""
    blocks = list(events(count, seed=seed, rate=rate, start=start))
    whole = {name: pa.concat_tables(getattr(block, name) for block in blocks) for name in ("person", "auction", "bid")}
    return {**whole, "side_input": side_input()}


def side_input(keys: int = SIDE_KEYS) -> pa.Table:
    numbers = pa.array(range(keys), pa.int64())
    return pa.table([numbers, _prefixed("value-", numbers)], schema=SIDE_INPUT)


@dataclass(frozen=True)
class _Clock:
    rate: int
    start_us: int

    def at_us(self, numbers: Ints) -> Ints:
        return self.start_us + numbers * 1_000 // self.rate * 1_000


# --- which events are which ---------------------------------------------------------------------------


def _before(number: int) -> tuple[int, int, int]:
    """How many persons, auctions and bids come before the event of this number."""
    epoch, place = divmod(number, PER_EPOCH)
    persons = min(place, PERSONS)
    auctions = min(place - persons, AUCTIONS)
    return epoch * PERSONS + persons, epoch * AUCTIONS + auctions, epoch * BIDS + place - persons - auctions


def _cut(chunk: tuple[pa.Table, ...], start: int, first: int, end: int) -> list[pa.Table]:
    bounds = zip(chunk, _before(max(first - start, 0)), _before(min(end - start, CHUNK)), strict=True)
    return [table.slice(low, high - low) for table, low, high in bounds]


@lru_cache(maxsize=2)  # blocks that are smaller than a chunk are cut from the same one
def _chunk(seed: int, at: int, clock: _Clock) -> tuple[pa.Table, pa.Table, pa.Table]:
    rng = np.random.default_rng([seed, 1, at])
    epochs = np.arange(at * CHUNK, (at + 1) * CHUNK, PER_EPOCH)[:, None]
    places = np.arange(PER_EPOCH)
    persons, auctions, bids = np.split(places, [PERSONS, PERSONS + AUCTIONS])
    return (
        _persons(rng, (epochs + persons).ravel(), clock),
        _auctions(rng, (epochs + auctions).ravel(), clock),
        _bids(rng, (epochs + bids).ravel(), clock, _channels(seed)),
    )


# --- the three kinds ----------------------------------------------------------------------------------


def _persons(rng: np.random.Generator, numbers: Ints, clock: _Clock) -> pa.Table:
    rows = len(numbers)
    email = _joined(_letters(rng, rng.integers(3, 8, rows)), "@", _letters(rng, rng.integers(3, 6, rows)), ".com")
    card = rng.integers(ord("0"), ord("9") + 1, (rows, 19), np.uint8)
    card[:, 4::5] = ord(" ")
    columns = [
        numbers // PER_EPOCH + FIRST_ID,
        _joined(_one_of(rng, FIRST_NAMES, rows), " ", _one_of(rng, LAST_NAMES, rows)),
        email,
        _strings(np.full(rows, 19), card.ravel()),
        _one_of(rng, CITIES, rows),
        _one_of(rng, STATES, rows),
        _times(clock.at_us(numbers)),
        _letters(rng, rng.integers(112, 168, rows)),
    ]
    return pa.table(columns, schema=PERSON)


def _auctions(rng: np.random.Generator, numbers: Ints, clock: _Clock) -> pa.Table:
    rows = len(numbers)
    people = numbers // PER_EPOCH
    at = clock.at_us(numbers)
    horizon_ms = (clock.at_us(numbers + IN_FLIGHT * PER_EPOCH // AUCTIONS) - at) // 1_000
    open_ms = 1 + rng.integers(0, np.maximum(2 * horizon_ms, 1))
    hot = rng.random(rows) < 0.75
    opening = _prices(rng, rows)
    columns = [
        _newest_auction(numbers) + FIRST_ID,
        _letters(rng, rng.integers(3, 20, rows)),
        _letters(rng, rng.integers(3, 100, rows)),
        opening,
        opening + _prices(rng, rows),
        _times(at),
        _times(at + open_ms * 1_000),
        np.where(hot, people // HOT_EVERY * HOT_EVERY, _someone(rng, people)) + FIRST_ID,
        rng.integers(FIRST_CATEGORY, FIRST_CATEGORY + CATEGORIES, rows),
        _letters(rng, rng.integers(312, 468, rows)),
    ]
    return pa.table(columns, schema=AUCTION)


def _bids(rng: np.random.Generator, numbers: Ints, clock: _Clock, channels: tuple[pa.Array, pa.Array]) -> pa.Table:
    rows = len(numbers)
    people, newest = numbers // PER_EPOCH, _newest_auction(numbers)
    oldest = np.maximum(newest - IN_FLIGHT, 0)
    any_auction = oldest + rng.integers(0, newest - oldest + 1 + LEAD)
    auction = np.where(rng.random(rows) < 0.5, newest // HOT_EVERY * HOT_EVERY, any_auction)
    # Not the same people as the hot sellers: next to them.
    bidder = np.where(rng.random(rows) < 0.75, people // HOT_EVERY * HOT_EVERY + 1, _someone(rng, people))
    cold = len(HOT_CHANNELS) + rng.integers(0, CHANNELS, rows)
    channel = pa.array(np.where(rng.random(rows) < 0.5, rng.integers(0, len(HOT_CHANNELS), rows), cold))
    names, urls = channels
    columns = [
        auction + FIRST_ID,
        bidder + FIRST_ID,
        _prices(rng, rows),
        names.take(channel),
        urls.take(channel),
        _times(clock.at_us(numbers)),
        _letters(rng, rng.integers(54, 82, rows)),
    ]
    return pa.table(columns, schema=BID)


@lru_cache(maxsize=1)
def _channels(seed: int) -> tuple[pa.Array, pa.Array]:
    """Names and URLs, the hot ones first; nine in ten of the others say their id in the URL."""
    rng = np.random.default_rng([seed, 0])
    rows = len(HOT_CHANNELS) + CHANNELS
    folders = [_letters(rng, rng.integers(3, 6, rows)) for _ in range(3)]
    urls = _joined("https://www.nexmark.com/", folders[0], "/", folders[1], "/", folders[2], "/item.htm?query=1")
    numbers = pa.array(range(CHANNELS), pa.int64())
    names = pa.concat_arrays([pa.array(HOT_CHANNELS, pa.string()), _prefixed("channel-", numbers)])
    ids = _joined(urls, "&channel_id=", pa.array(rng.integers(0, 2**31, rows)).cast(pa.string()))
    told = (np.arange(rows) >= len(HOT_CHANNELS)) & (rng.random(rows) < 0.9)
    return names, pc.if_else(pa.array(told), ids, urls)


# --- numbers and strings ------------------------------------------------------------------------------


def _newest_auction(numbers: Ints) -> Ints:
    """The number of the last auction up to each event, of those that come after an auction of their epoch."""
    return numbers // PER_EPOCH * AUCTIONS + np.minimum(numbers % PER_EPOCH - PERSONS, AUCTIONS - 1)


def _someone(rng: np.random.Generator, newest: Ints) -> Ints:
    active = np.minimum(newest + 1, ACTIVE_PEOPLE)
    return newest + 1 - active + rng.integers(0, active + LEAD)


def _prices(rng: np.random.Generator, rows: int) -> Ints:
    """In cents, each order of magnitude from a dollar to a million as likely as another."""
    prices: Ints = np.rint(np.power(10.0, rng.random(rows) * 6) * 100).astype(np.int64)
    return prices


def _times(us: Ints) -> pa.Array:
    return pa.array(us).cast(TIME)


def _one_of(rng: np.random.Generator, words: list[str], rows: int) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), rows)))


def _letters(rng: np.random.Generator, lengths: Ints) -> pa.Array:
    return _strings(lengths, rng.integers(ord("a"), ord("z") + 1, int(lengths.sum()), np.uint8))


def _strings(lengths: npt.NDArray[np.int64], characters: npt.NDArray[np.uint8]) -> pa.Array:
    ends = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(ends), pa.py_buffer(characters))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _prefixed(prefix: str, numbers: pa.Array) -> pa.Array:
    return _joined(prefix, numbers.cast(pa.string()))

"""Nexmark's queries q0 to q22 in our SQL: DuckDB's, over topics, with TUMBLE, HOP and SESSION as table functions.

They mean what the reference's mean. Where they differ from it, `note` says how; the same in all of them: time is event
time, also where the reference takes the time of processing, and ties in an order are broken by all columns, so that a
query over the same events has one answer, whoever computes it.

`oracle` is the same query for DuckDB alone: ours, where it has no window function.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.testing.nexmark.in_duckdb import IN_DUCKDB
from headwater.testing.nexmark.in_flink import AS_IN_REFERENCE, IN_FLINK


@dataclass(frozen=True)
class Query:
    name: str
    title: str
    sql: str
    key: tuple[str, ...]
    """Columns that tell the answer's rows apart; () where the answer may hold a row twice."""
    note: str

    @property
    def oracle(self) -> str:
        return IN_DUCKDB.get(self.name, self.sql)

    @property
    def flink(self) -> str | None:
        """The same in Flink's SQL, with the same answer; None where Flink cannot."""
        return IN_FLINK.get(self.name)

    @property
    def flink_at_its_best(self) -> str | None:
        """As the reference has it where that is another one: without our breaking of ties, which costs Flink time."""
        return AS_IN_REFERENCE.get(self.name, self.flink)


QUERIES: dict[str, Query] = {}


def _query(name: str, title: str, sql: str, *, key: tuple[str, ...] = (), note: str = "") -> None:
    QUERIES[name] = Query(name, title, sql.strip(), key, note)


# --- bid by bid ---------------------------------------------------------------------------------------

_query("q0", "Pass through", "SELECT auction, bidder, price, date_time, extra FROM bid")

_query("q1", "Currency conversion", "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid")

_query("q2", "Selection", "SELECT auction, price FROM bid WHERE auction % 123 = 0")

_query(
    "q10",
    "Log to files",
    """
SELECT auction, bidder, price, date_time, extra,
       strftime(date_time, '%Y-%m-%d') AS dt, strftime(date_time, '%H:%M') AS hm
FROM bid
""",
    note="the reference writes files, partitioned by dt and hm; here they are columns",
)

_query(
    "q14",
    "Calculation",
    """
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       date_time, extra,
       length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
""",
    note="counts a character by a difference of lengths; the reference has a user's function for it",
)

_query(
    "q21",
    "Add channel id",
    r"""
SELECT auction, bidder, price, channel,
       CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
   OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
""",
    note="where nothing matches, DuckDB's regexp_extract is empty, not null",
)

_query(
    "q22",
    "Get URL directories",
    """
SELECT auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid
""",
)

# --- joins --------------------------------------------------------------------------------------------

_query(
    "q3",
    "Local item suggestion",
    """
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
""",
    key=("id",),
)

_query(
    "q4",
    "Average price for a category",
    """
SELECT category, avg(final) AS final
FROM (
    SELECT a.id, a.category, max(b.price) AS final
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
) AS winning
GROUP BY category
""",
    key=("category",),
    note="the average is a double; Flink's of integers is an integer",
)

_query(
    "q6",
    "Average selling price by seller",
    """
SELECT seller,
       avg(price) OVER (
           PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
       ) AS avg_price
FROM (
    SELECT a.id, a.seller, b.price, b.date_time
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    QUALIFY row_number() OVER (
        PARTITION BY a.id, a.seller ORDER BY b.price DESC, b.date_time, b.bidder, b.channel, b.url, b.extra
    ) = 1
) AS winning
""",
    note="the winning bid by QUALIFY; the earliest of the highest bids wins",
)

_query(
    "q9",
    "Winning bids",
    """
SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category,
       a.extra, b.auction, b.bidder, b.price, b.date_time AS bid_date_time, b.extra AS bid_extra
FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
QUALIFY row_number() OVER (
    PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder, b.channel, b.url, b.extra
) = 1
""",
    key=("id",),
    note="by QUALIFY",
)

_query(
    "q13",
    "Bounded side input",
    """
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b JOIN side_input s ON b.auction % 10000 = s.key
""",
    note="the side input is a table that may change, and is not looked up at the time of processing",
)

_query(
    "q20",
    "Expand bid with auction",
    """
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_date_time, b.extra AS bid_extra,
       a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_date_time, a.expires, a.seller,
       a.category, a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
""",
)

# --- windows of time ----------------------------------------------------------------------------------

_query(
    "q5",
    "Hot items",
    """
WITH counted AS (
    SELECT auction, count(*) AS num, window_start, window_end
    FROM HOP(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
    GROUP BY auction, window_start, window_end
), most AS (
    SELECT max(num) AS num, window_start, window_end FROM counted GROUP BY window_start, window_end
)
SELECT c.auction, c.num
FROM counted c JOIN most m
ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.num
""",
    note="the count is named once, as a common table expression",
)

_query(
    "q7",
    "Highest bid",
    """
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b
JOIN (
    SELECT max(price) AS max_price, window_end
    FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
    GROUP BY window_start, window_end
) AS highest
ON b.price = highest.max_price
WHERE b.date_time BETWEEN highest.window_end - INTERVAL '10 seconds' AND highest.window_end
""",
)

_query(
    "q8",
    "Monitor new users",
    """
SELECT p.id, p.name, p.window_start AS starttime
FROM (
    SELECT id, name, window_start, window_end
    FROM TUMBLE(person, date_time, INTERVAL '10 seconds')
    GROUP BY id, name, window_start, window_end
) AS p
JOIN (
    SELECT seller, window_start, window_end
    FROM TUMBLE(auction, date_time, INTERVAL '10 seconds')
    GROUP BY seller, window_start, window_end
) AS a
ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
""",
    key=("id", "starttime"),
)

_query(
    "q11",
    "User sessions",
    """
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM SESSION(bid, date_time, bidder, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
""",
    key=("bidder", "starttime"),
    note="bids that are exactly the gap apart are still of one session, as in Flink",
)

_query(
    "q12",
    "Windows of processing time",
    """
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TUMBLE(bid, date_time, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
""",
    key=("bidder", "starttime"),
    note="in event time: the reference's answer depends on when it runs",
)

# --- statistics and tops ------------------------------------------------------------------------------

_RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


def _counts(what: str, name: str) -> str:
    return ",\n       ".join(f"count({what}) FILTER ({where}) AS {rank}_{name}" for rank, where in _RANKS.items())


_ALL_COUNTS = ",\n       ".join(
    [_counts("*", "bids"), _counts("DISTINCT bidder", "bidders"), _counts("DISTINCT auction", "auctions")]
).replace(" FILTER (true)", "")

_query(
    "q15",
    "Bidding statistics",
    f"""
SELECT strftime(date_time, '%Y-%m-%d') AS day,
       {_ALL_COUNTS}
FROM bid
GROUP BY strftime(date_time, '%Y-%m-%d')
""",
    key=("day",),
)

_query(
    "q16",
    "Channel statistics",
    f"""
SELECT channel, strftime(date_time, '%Y-%m-%d') AS day, max(strftime(date_time, '%H:%M')) AS minute,
       {_ALL_COUNTS}
FROM bid
GROUP BY channel, strftime(date_time, '%Y-%m-%d')
""",
    key=("channel", "day"),
)

_query(
    "q17",
    "Auction statistics",
    f"""
SELECT auction, strftime(date_time, '%Y-%m-%d') AS day,
       {_counts("*", "bids").replace(" FILTER (true)", "")},
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, sum(price) AS sum_price
FROM bid
GROUP BY auction, strftime(date_time, '%Y-%m-%d')
""",
    key=("auction", "day"),
    note="the average is a double, as in q4",
)

_query(
    "q18",
    "Last bids",
    """
SELECT auction, bidder, price, channel, url, date_time, extra
FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, price DESC, channel, url, extra) = 1
""",
    key=("bidder", "auction"),
    note="by QUALIFY",
)

_query(
    "q19",
    "Top ten bids of an auction",
    """
SELECT *
FROM (
    SELECT *, row_number() OVER (
        PARTITION BY auction ORDER BY price DESC, date_time, bidder, channel, url, extra
    ) AS rank_number
    FROM bid
) AS ranked
WHERE rank_number <= 10
""",
    key=("auction", "rank_number"),
)

QUERIES = {f"q{number}": QUERIES[f"q{number}"] for number in range(23)}

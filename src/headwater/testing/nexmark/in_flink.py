"""Nexmark's queries in Flink's SQL, with the answers of ours: the peer that ours are measured and checked against.

q6 is missing (FLINK-19059): "Non-time attribute sort is not supported for bounded OVER window", Flink 2.3 says.
"""

from __future__ import annotations

IN_FLINK: dict[str, str] = {}
AS_IN_REFERENCE: dict[str, str] = {}
"""Where the order of the reference lets Flink do less: q18 is then its operator for duplicates, not one for ranks."""


def _flink(name: str, sql: str, *, as_in_reference: str | None = None) -> None:
    IN_FLINK[name] = sql.strip()
    if as_in_reference is not None:
        AS_IN_REFERENCE[name] = as_in_reference.strip()


DAY, MINUTE = "DATE_FORMAT(date_time, 'yyyy-MM-dd')", "DATE_FORMAT(date_time, 'HH:mm')"
CHANNEL_ID = r"REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
BIDS_IN_TIME = "auction AS A JOIN bid AS B ON A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires"

_flink("q0", "SELECT auction, bidder, price, date_time, extra FROM bid")
_flink("q1", "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid")
_flink("q2", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0")
_flink("q10", f"SELECT auction, bidder, price, date_time, extra, {DAY} AS dt, {MINUTE} AS hm FROM bid")
_flink(
    "q14",
    """
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       date_time, extra,
       CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
""",
)
_flink(
    "q21",
    f"""
SELECT auction, bidder, price, channel,
       CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE {CHANNEL_ID} END AS channel_id
FROM bid
WHERE {CHANNEL_ID} IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')
""",
)
_flink(
    "q22",
    """
SELECT auction, bidder, price, channel,
       SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid
""",
)

# --- joins --------------------------------------------------------------------------------------------

_flink(
    "q3",
    """
SELECT P.name, P.city, P.state, A.id
FROM auction AS A JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')
""",
)
_flink(
    "q4",
    f"""
SELECT category, AVG(CAST(final AS DOUBLE)) AS final
FROM (SELECT A.id, A.category, MAX(B.price) AS final FROM {BIDS_IN_TIME} GROUP BY A.id, A.category)
GROUP BY category
""",
)


def _winning(order: str) -> str:
    return f"""
SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra,
       auction, bidder, price, bid_date_time, bid_extra
FROM (
    SELECT A.*, B.auction, B.bidder, B.price, B.date_time AS bid_date_time, B.extra AS bid_extra,
           ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY {order}) AS row_num
    FROM {BIDS_IN_TIME}
)
WHERE row_num <= 1
"""


_flink(
    "q9",
    _winning("B.price DESC, B.date_time, B.bidder, B.channel, B.url, B.extra"),
    as_in_reference=_winning("B.price DESC, B.date_time"),
)
_flink(
    "q13",
    """
SELECT B.auction, B.bidder, B.price, B.date_time, S.`value`
FROM bid AS B JOIN side_input FOR SYSTEM_TIME AS OF B.date_time AS S ON MOD(B.auction, 10000) = S.`key`
""",
)
_flink(
    "q20",
    """
SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.date_time AS bid_date_time, B.extra AS bid_extra,
       A.item_name, A.description, A.initial_bid, A.reserve, A.date_time AS auction_date_time, A.expires, A.seller,
       A.category, A.extra AS auction_extra
FROM bid AS B JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10
""",
)

# --- windows of time ----------------------------------------------------------------------------------

TUMBLING = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
COUNTED = """
    SELECT auction, COUNT(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
"""

_flink(
    "q5",
    f"""
SELECT C.auction, C.num
FROM ({COUNTED}) AS C
JOIN (SELECT MAX(num) AS num, window_start, window_end FROM ({COUNTED}) GROUP BY window_start, window_end) AS M
ON C.window_start = M.window_start AND C.window_end = M.window_end AND C.num >= M.num
""",
)
_flink(
    "q7",
    f"""
SELECT B.auction, B.price, B.bidder, B.date_time, B.extra
FROM bid AS B
JOIN (
    SELECT MAX(price) AS max_price, window_end FROM {TUMBLING.format("bid")} GROUP BY window_start, window_end
) AS H
ON B.price = H.max_price
WHERE B.date_time BETWEEN H.window_end - INTERVAL '10' SECOND AND H.window_end
""",
)
_flink(
    "q8",
    f"""
SELECT P.id, P.name, P.window_start AS starttime
FROM (
    SELECT id, name, window_start, window_end FROM {TUMBLING.format("person")}
    GROUP BY id, name, window_start, window_end
) AS P
JOIN (
    SELECT seller, window_start, window_end FROM {TUMBLING.format("auction")}
    GROUP BY seller, window_start, window_end
) AS A
ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end
""",
)
_flink(
    "q11",
    """
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
""",
)
_flink(
    "q12",
    f"""
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM {TUMBLING.format("bid")}
GROUP BY bidder, window_start, window_end
""",
)

# --- statistics and tops ------------------------------------------------------------------------------

RANKS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}


def _counts(what: str, name: str) -> str:
    ranks = [f"COUNT({what}) FILTER (WHERE {where}) AS {rank}_{name}" for rank, where in RANKS.items()]
    return ",\n       ".join([f"COUNT({what}) AS total_{name}", *ranks])


ALL_COUNTS = ",\n       ".join(
    [_counts("*", "bids"), _counts("DISTINCT bidder", "bidders"), _counts("DISTINCT auction", "auctions")]
)

_flink("q15", f"SELECT {DAY} AS `day`,\n       {ALL_COUNTS}\nFROM bid\nGROUP BY {DAY}")
_flink(
    "q16",
    f"""
SELECT channel, {DAY} AS `day`, MAX({MINUTE}) AS `minute`,
       {ALL_COUNTS}
FROM bid
GROUP BY channel, {DAY}
""",
)
_flink(
    "q17",
    f"""
SELECT auction, {DAY} AS `day`,
       {_counts("*", "bids")},
       MIN(price) AS min_price, MAX(price) AS max_price, AVG(CAST(price AS DOUBLE)) AS avg_price,
       SUM(price) AS sum_price
FROM bid
GROUP BY auction, {DAY}
""",
)


def _last(order: str) -> str:
    return f"""
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY {order}) AS row_num FROM bid)
WHERE row_num <= 1
"""


def _top(order: str) -> str:
    return f"""
SELECT auction, bidder, price, channel, url, date_time, extra, rank_number
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY {order}) AS rank_number FROM bid)
WHERE rank_number <= 10
"""


_flink("q18", _last("date_time DESC, price DESC, channel, url, extra"), as_in_reference=_last("date_time DESC"))
_flink("q19", _top("price DESC, date_time, bidder, channel, url, extra"), as_in_reference=_top("price DESC"))

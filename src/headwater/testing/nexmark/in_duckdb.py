"""Those of Nexmark's queries that have windows of time, for DuckDB alone, which has no such functions.

The windows are worked out by hand, from milliseconds and neighbours: a mistake in our planner is not repeated here.
"""

from __future__ import annotations

IN_DUCKDB = {
    "q5": """
WITH hops AS (
    SELECT auction, epoch_ms(date_time) // 2000 - back AS hop FROM bid CROSS JOIN range(5) AS five(back)
), counted AS (
    SELECT auction, hop, count(*) AS num FROM hops GROUP BY auction, hop
)
SELECT auction, num FROM counted QUALIFY num = max(num) OVER (PARTITION BY hop)""",
    "q7": """
WITH highest AS (
    SELECT max(price) AS price, epoch_ms(date_time) // 10000 * 10000 AS start_ms FROM bid GROUP BY start_ms
)
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b JOIN highest h
ON b.price = h.price AND epoch_ms(b.date_time) BETWEEN h.start_ms AND h.start_ms + 10000""",
    "q8": """
SELECT DISTINCT p.id, p.name, make_timestamptz(epoch_us(p.date_time) // 10000000 * 10000000) AS starttime
FROM person p JOIN auction a
ON p.id = a.seller AND epoch_us(p.date_time) // 10000000 = epoch_us(a.date_time) // 10000000""",
    "q11": """
WITH marked AS (
    SELECT bidder, date_time,
           date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) <= INTERVAL '10 seconds' AS goes_on
    FROM bid
), numbered AS (
    SELECT bidder, date_time,
           count(*) FILTER (goes_on IS NOT TRUE) OVER (PARTITION BY bidder ORDER BY date_time) AS session
    FROM marked
)
SELECT bidder, count(*) AS bid_count, min(date_time) AS starttime, max(date_time) + INTERVAL '10 seconds' AS endtime
FROM numbered GROUP BY bidder, session""",
    "q12": """
SELECT bidder, count(*) AS bid_count, make_timestamptz(us) AS starttime, make_timestamptz(us + 10000000) AS endtime
FROM (SELECT bidder, epoch_us(date_time) // 10000000 * 10000000 AS us FROM bid)
GROUP BY bidder, us""",
}

"""The four joins of stream processing, each as one view: `headwater run examples/joins.py`.

stream-stream     which search led to which click, within ten minutes
stream-table      clicks with the country of whoever clicked, as it is now: it changes when they move
table-table       home timelines: the posts of those whom one follows, through follow, unfollow, post and delete
time-dependent    orders with the tax rate that was valid when they were made, also if the rate becomes known later
"""

from __future__ import annotations

import os

import headwater as hw

app = hw.App("joins", log=os.environ.get("JOINS_LOG", "file:data/joins"))

searches = app.topic(
    "searches", {"session": "string", "words": "string", "searched_at": "timestamp"}, key="session", time="searched_at"
)
clicks = app.topic(
    "clicks",
    {"session": "string", "user_id": "int64", "url": "string", "clicked_at": "timestamp"},
    key="session",
    time="clicked_at",
)
users = app.topic("users", {"user_id": "int64", "country": "string"}, key="user_id", kind="table")
posts = app.topic("posts", {"id": "int64", "author": "int64", "text": "string"}, key="id", kind="table")
follows = app.topic("follows", {"follower": "int64", "followee": "int64"}, key=("follower", "followee"), kind="table")
rates = app.topic(
    "rates", {"country": "string", "percent": "int64", "since": "timestamp"}, key="country", time="since", kind="table"
)
orders = app.topic(
    "orders", {"id": "int64", "country": "string", "amount": "int64", "made_at": "timestamp"}, key="id", time="made_at"
)

app.view(
    "found",
    sql="""
        SELECT s.session, s.words, c.url, c.clicked_at
        FROM searches s JOIN clicks c
        ON s.session = c.session AND c.clicked_at BETWEEN s.searched_at AND s.searched_at + INTERVAL '10 minutes'""",
)
app.view(
    "clicks_by_country",
    sql="""
        SELECT u.country, count(*) AS clicks, count(DISTINCT c.user_id) AS people
        FROM clicks c JOIN users u ON c.user_id = u.user_id
        GROUP BY u.country""",
)
app.view(
    "timelines",
    sql="""
        SELECT f.follower, p.id, p.author, p.text
        FROM follows f JOIN posts p ON f.followee = p.author""",
    key=("follower", "id"),
)
app.view(
    "taxed",
    sql="""
        SELECT o.id, o.country, o.amount, r.percent, o.amount * r.percent / 100 AS tax
        FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.made_at AS r ON o.country = r.country""",
    key="id",
)

if __name__ == "__main__":
    app.run()

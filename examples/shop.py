"""The demo: clicks joined with users, counted by page, live. `make demo`, or `headwater run examples/shop.py`."""

import os

import headwater as hw

app = hw.App("shop", log=os.environ.get("SHOP_LOG", "file:demo-data"))

clicks = app.topic("clicks", {"user_id": "int64", "page": "string", "at": "timestamp"}, key="user_id", time="at")
users = app.topic("users", {"user_id": "int64", "country": "string"}, key="user_id", kind="table")

by_page = app.view(
    "by_page",
    sql="""
    SELECT c.page, count(*) AS views, count(DISTINCT c.user_id) AS visitors, count(DISTINCT u.country) AS countries
    FROM clicks c JOIN users u ON c.user_id = u.user_id
    GROUP BY c.page""",
)

if __name__ == "__main__":
    app.run(http="127.0.0.1:8080")

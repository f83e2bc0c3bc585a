"""The app of two_lanes.py and views in SQL beside it: two share the query of the fold, one of them reads the other, and
one has two levels and so a query of its own."""

from tests.e2e.two_lanes import app

app.view("per_user", sql="SELECT user_id, count(*) AS n, max(price) AS most FROM buys GROUP BY user_id", max_rows=2000)
app.view("how_many", sql="SELECT n, count(*) AS users FROM per_user GROUP BY n")
app.view(
    "by_name",
    sql="""SELECT u.name, count(*) AS n, count(DISTINCT b.price) AS prices
           FROM buys b JOIN users u ON b.user_id = u.user_id GROUP BY u.name""",
    max_rows=2000,
)

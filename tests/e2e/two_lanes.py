"""An app with a pipeline in each lane, for tests that kill it: LANES_LOG says where its log is."""

import os

import headwater as hw

app = hw.App("lanes", log=os.environ["LANES_LOG"])
app.topic("buys", {"id": "int64", "user_id": "int64", "price": "float64"}, key="user_id")
app.topic("users", {"user_id": "int64", "name": "string"}, key="user_id", kind="table", upsert=True)


@app.stream("named", {"id": "int64", "name": "string"}, key="id", max_rows=2000)
def named(buys, users):
    return buys.join(users, "user_id").select("id", "name")


@app.fold("spent", {"total": "float64", "n": "int64"}, of="buys", initial={"total": 0.0, "n": 0}, max_rows=2000)
def spent(state, buy):
    return {"total": state["total"] + buy["price"], "n": state["n"] + 1}

"""Groups and queues over HTTP, and what Prometheus and AsyncAPI are told of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import headwater as hw
from headwater.serve.http import make_api
from tests.unit.http_shop import Shop, click

GROUP = "/topics/clicks/groups/billing"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "log")
    made.clicks.append([click(n) for n in range(20)])
    yield made
    made.close()


def test_a_poll_whose_answer_was_lost_gives_the_same_records_again(client: TestClient) -> None:
    here = client.post(f"{GROUP}/join", json={"member": "a"}).json()
    ask = {"member": "a", "generation": here["generation"], "next": here["next"]}
    lost = client.post(f"{GROUP}/poll", json=ask).json()
    again = client.post(f"{GROUP}/poll", json=ask).json()
    assert len(again["records"]) == 20
    assert again == lost
    further = {"member": "a", "generation": again["generation"], "next": again["next"]}
    assert client.post(f"{GROUP}/poll", json=further).json()["records"] == []
    done = {"member": "a", "generation": again["generation"], "offsets": again["next"]}
    assert client.post(f"{GROUP}/commit", json=done).status_code == 204
    assert sum(row["lag"] for row in client.get(GROUP).json()["lag"]) == 0


def test_who_reads_after_a_rebalance_begins_at_what_is_committed_and_old_commits_are_refused(
    client: TestClient,
) -> None:
    first = client.post(f"{GROUP}/join", json={"member": "a"}).json()
    client.post(f"{GROUP}/join", json={"member": "b"}).raise_for_status()
    old = {"member": "a", "generation": first["generation"], "offsets": {"0": 1}}
    refused = client.post(f"{GROUP}/commit", json=old)
    assert (refused.status_code, refused.json()["title"]) == (409, "Rebalanced")
    ask = {"member": "a", "generation": first["generation"], "next": {"0": 5, "1": 5}}
    polled = client.post(f"{GROUP}/poll", json=ask).json()
    assert polled["generation"] > first["generation"]
    assert min(record["_offset"] for record in polled["records"]) == 0


def test_a_queue_is_made_taken_from_and_settled(client: TestClient) -> None:
    client.put("/queues/mail", json={"topic": "clicks", "attempts": 2}).raise_for_status()
    taken = client.post("/queues/mail/take", json={"count": 3}).json()["deliveries"]
    receipts = [each["receipt"] for each in taken]
    assert client.post("/queues/mail/acknowledge", json={"receipt": receipts[0]}).status_code == 204
    assert client.post("/queues/mail/release", json={"receipt": receipts[1]}).status_code == 204
    assert client.post("/queues/mail/reject", json={"receipt": receipts[2]}).status_code == 204
    told = client.get("/queues/mail").json()
    assert told["dead"] == 1
    assert sum(row["waiting"] for row in told["lag"]) == 17
    (again,) = client.post("/queues/mail/take", json={"count": 1}).json()["deliveries"]
    assert again["attempt"] == 2
    assert client.post("/queues/mail/extend", json={"receipt": again["receipt"]}).json()["until"]
    lost = client.post("/queues/mail/acknowledge", json={"receipt": receipts[0]})
    assert (lost.status_code, lost.json()["title"]) == (409, "LeaseLost")


@pytest.mark.parametrize(
    ("url", "body", "status"),
    [
        ("/queues/none/take", {}, 404),
        (f"{GROUP}/poll", {"member": "x"}, 404),
        (f"{GROUP}/poll", {"member": "x", "next": {"a": 1}}, 422),
        (f"{GROUP}/join", {"member": "x", "more": 1}, 422),
        ("/topics/nope/groups/g/join", {"member": "x"}, 404),
        ("/queues/none/take", {"count": "many"}, 422),
        ("/commands/account/1", {"kind": "Deposit"}, 404),
    ],
)
def test_a_wrong_request_is_a_problem(client: TestClient, url: str, body: dict[str, object], status: int) -> None:
    answer = client.post(url, json=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_lag_has_the_names_of_kafka_exporter(client: TestClient) -> None:
    client.post(f"{GROUP}/join", json={"member": "a"}).raise_for_status()
    told = client.get("/metrics").text
    assert 'kafka_consumergroup_lag_sum{consumergroup="billing",topic="clicks"} 20.0' in told
    assert 'kafka_consumergroup_members{consumergroup="billing"} 1.0' in told
    assert 'kafka_topic_partitions{topic="clicks"} 2.0' in told
    for name in ("kafka_consumergroup_lag", "kafka_consumergroup_current_offset"):
        assert f'{name}{{consumergroup="billing",partition="0",topic="clicks"}}' in told
    for name in ("kafka_topic_partition_current_offset", "kafka_topic_partition_oldest_offset"):
        assert f'{name}{{partition="0",topic="clicks"}}' in told
    assert 'headwater_view_lag_records{view="by_page"} 20.0' in told


def test_metrics_have_routes_not_paths_as_labels(client: TestClient) -> None:
    client.get("/topics/somebody@example.com")
    client.get("/whatever/secret-id")
    told = client.get("/metrics").text
    assert 'route="/topics/{topic}"' in told
    assert "example.com" not in told
    assert "secret-id" not in told


def test_the_asyncapi_document_has_every_topic_and_view(client: TestClient) -> None:
    told = client.get("/asyncapi.json").json()
    assert told["asyncapi"] == "3.1.0"
    assert set(told["channels"]) == {"clicks", "by_page", "view.by_page"}
    assert told["operations"]["append.clicks"]["action"] == "receive"
    assert "append.by_page" not in told["operations"]
    record = told["components"]["schemas"]["clicks"]
    assert record["required"] == ["user_id", "at"]
    assert record["properties"]["at"] == {"type": "string", "format": "date-time"}
    assert record["properties"]["page"] == {"type": ["string", "null"]}
    for operation in told["operations"].values():
        assert operation["channel"]["$ref"].removeprefix("#/channels/") in told["channels"]


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Deposited:
    amount: int


def decide(command: Deposit, balance: int) -> list[Deposited]:
    if command.amount <= 0:
        hw.refuse("nothing to deposit")
    return [Deposited(command.amount)]


def test_a_command_reaches_its_decider_once_or_is_refused(tmp_path: Path) -> None:
    with hw.App("bank", log=f"file:{tmp_path / 'bank'}") as app:
        app.decider(
            "account",
            initial=0,
            decide=decide,
            evolve=lambda balance, event: balance + event.amount,
            events=[Deposited],
            commands=[Deposit],
        )
        client = TestClient(make_api({}, {}, log=app.log, deciders=app.deciders), raise_server_exceptions=False)
        command = {"kind": "Deposit", "payload": {"amount": 10}}
        key = {"Idempotency-Key": "c1"}
        first, again = (client.post("/commands/account/17", json=command, headers=key).json() for _ in range(2))
        assert first["events"] == [{"kind": "Deposited", "payload": {"amount": 10}}]
        assert (first["version"], first["repeated"], again["repeated"]) == (1, False, True)
        assert again["position"] == first["position"]
        refused = client.post("/commands/account/17", json={"kind": "Deposit", "payload": {"amount": 0}})
        assert (refused.status_code, refused.json()["title"]) == (409, "CommandRefused")
        wrong = client.post("/commands/account/17", json={"kind": "Withdraw", "payload": {}})
        assert (wrong.status_code, wrong.json()["title"]) == (422, "BadCommand")
        assert app.deciders["account"].state("17") == 10

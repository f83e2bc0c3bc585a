"""`headwater group` and `headwater queue`, called in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headwater.cli import group, queue
from headwater.errors import BadOffset, BadRequest, GroupNotFound, HeadwaterError, LeaseLost, QueueNotFound, UsageError
from headwater.log import Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.groups import EmbeddedGroups
from headwater.log.groups import Consumer
from headwater.records import schema_of


@pytest.fixture
def url(tmp_path: Path) -> str:
    log = EmbeddedLog(tmp_path / "log")
    jobs = Topic(log, log.create(TopicSpec("jobs", schema_of({"id": "int64"}), partitions=2)))
    jobs.append([{"id": n} for n in range(5)], partition=0)
    with Consumer(log, EmbeddedGroups(log), group="readers", topic="jobs", member="a") as consumer:
        consumer.poll(0)
        consumer.commit()
    return log.url


def answer(cli: typer.Typer, url: str, *args: str) -> Any:
    """What it wrote as JSON; what it raised, raised here."""
    done = CliRunner().invoke(cli, [*args, "--log", url, "--json"])
    if isinstance(done.exception, HeadwaterError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_groups_are_listed_with_their_lag(url: str) -> None:
    listed = answer(group.cli, url, "list")
    assert listed == [{"group": "readers", "topic": "jobs", "members": 0, "generation": 2, "lag": 0}]
    first, _ = answer(group.cli, url, "lag", "readers")
    assert (first["partition"], first["committed"], first["end"], first["lag"]) == (0, 5, 5, 0)
    with pytest.raises(GroupNotFound, match="there is no group 'nope'. Groups there: readers"):
        answer(group.cli, url, "lag", "nope")


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (["--to-start"], {0: 0, 1: 0}),
        (["--to-end"], {0: 5, 1: 0}),
        (["--to-time", "2020-01-01T00:00:00Z"], {0: 0, 1: 0}),
        (["--to-offset", "0=2"], {0: 2}),
    ],
)
def test_a_reset_is_shown_before_it_is_done(url: str, to: list[str], expected: dict[int, int]) -> None:
    shown = answer(group.cli, url, "reset", "readers", *to, "--dry-run")
    assert {row["partition"]: row["to"] for row in shown} == expected
    assert answer(group.cli, url, "list")[0]["lag"] == 0
    done = answer(group.cli, url, "reset", "readers", *to)
    assert [{**row, "done": True} for row in shown] == done
    assert answer(group.cli, url, "list")[0]["lag"] == 5 - expected[0]


@pytest.mark.parametrize(
    ("to", "refusal"),
    [
        ([], UsageError),
        (["--to-start", "--to-end"], UsageError),
        (["--to-offset", "0:2"], BadRequest),
        (["--to-time", "yesterday"], BadRequest),
        (["--to-offset", "0=6", "--dry-run"], BadOffset),
    ],
)
def test_a_reset_to_nowhere_is_refused(url: str, to: list[str], refusal: type[HeadwaterError]) -> None:
    with pytest.raises(refusal):
        answer(group.cli, url, "reset", "readers", *to)


def test_a_queue_from_its_making_to_the_replay_of_its_dead_letters(url: str) -> None:
    made = answer(queue.cli, url, "create", "work", "jobs", "--lease-s", "30", "--attempts", "2")
    assert made == [{"name": "work", "topic": "jobs", "lease_s": 30.0, "attempts": 2, "dead": "work.dead"}]
    one, two, three = answer(queue.cli, url, "take", "work", "--count", "3")
    (longer,) = answer(queue.cli, url, "extend", "work", one["receipt"], "--lease-s", "90")
    assert (longer["state"], longer["until"] > one["until"]) == ("extended", True)
    answer(queue.cli, url, "ack", "work", one["receipt"])
    with pytest.raises(LeaseLost):
        answer(queue.cli, url, "ack", "work", one["receipt"])
    answer(queue.cli, url, "release", "work", two["receipt"])
    answer(queue.cli, url, "reject", "work", three["receipt"])
    counts = {"waiting": 2, "taken": 0, "returned": 1, "dead": 1}
    assert answer(queue.cli, url, "list") == [{"queue": "work", "topic": "jobs", **counts, "dead_letters": "work.dead"}]
    assert answer(queue.cli, url, "replay", "work") == [{"queue": "work", "replayed": 1}]
    assert sum(row["waiting"] for row in answer(queue.cli, url, "lag", "work")) == 3
    assert answer(queue.cli, url, "skip", "work") == []
    again = answer(queue.cli, url, "take", "work", "--count", "9")
    assert [(each["record"]["id"], each["attempt"]) for each in again] == [(1, 2), (3, 1), (4, 1), (2, 1)]
    with pytest.raises(QueueNotFound):
        answer(queue.cli, url, "take", "nope")

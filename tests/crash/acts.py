"""Run under the faulty disk: one act on a copy of a prepared log, with the Nth act on its files going wrong.

Every case is a fork of this process, so that imports are paid once. Prints one JSON line a case:
what the act answered, or the error's name, or "died".
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd  # noqa: F401  (pyarrow imports it at its first array: once here, not in every fork)
import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.log import Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog
from headwater.records import schema_of
from headwater.testing.faulty_disk import Fault, arm, disarm

CLICKS = TopicSpec("clicks", schema_of({"user_id": "int64", "page": "string"}), key=("user_id",), partitions=2)
USERS = TopicSpec(
    "users", schema_of({"user_id": "int64", "name": "string"}), key=("user_id",), kind="table", partitions=1
)
LARGE = 3000
"""So many clicks are a chunk file."""


def clicks(first: int, count: int) -> pa.Table:
    return pa.table({"user_id": range(first, first + count), "page": ["/some/page/that/is/long"] * count})


def prepare(folder: Path) -> None:
    log = EmbeddedLog(folder)
    topic, users = Topic(log, log.create(CLICKS)), Topic(log, log.create(USERS))
    topic.append(clicks(0, 2 * LARGE))
    for number in range(12):
        topic.append(clicks(10_000 + number, 1))
        users.append(
            [{"user_id": 1, "name": f"n{number}"}]
            + ([{"user_id": 1, "name": f"n{number - 1}", "_weight": -1}] if number else [])
        )
    log.close()


def append_small(log: EmbeddedLog) -> Any:
    return str(Topic(log, log.topic("clicks")).append(clicks(20_000, 1)))


def append_large(log: EmbeddedLog) -> Any:
    return str(Topic(log, log.topic("clicks")).append(clicks(20_000, 2 * LARGE)))


def roll_up(log: EmbeddedLog) -> Any:
    return log.upkeep.roll_up("clicks", least_chunks=2)


def compact(log: EmbeddedLog) -> Any:
    return log.upkeep.compact("users")


def retain(log: EmbeddedLog) -> Any:
    log.alter("clicks", settings=Settings(retain_bytes=10_000))
    log.upkeep.retain("clicks")
    return log.upkeep.collect_garbage(grace_s=-1)


def forget(log: EmbeddedLog) -> Any:
    return log.upkeep.forget("clicks", keys=[{"user_id": 7}]).records


ACTS = {act.__name__: act for act in (append_small, append_large, roll_up, compact, retain, forget)}


def run_case(act: str, folder: Path, nth: int, fault: Fault, *, sticky: bool) -> dict[str, Any]:
    """In a child of its own: open, arm, act, disarm, and act once more after opening again."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        told: dict[str, Any] = {}
        log = EmbeddedLog(folder)
        arm(folder, nth, fault, sticky=sticky)
        try:
            told["answer"] = ACTS[act](log)
        except HeadwaterError as error:
            told["error"] = type(error).__name__
        except BaseException as error:  # noqa: BLE001  (the test must see it, whatever it is)
            told["error"] = f"untranslated {error!r}"
        told["acts"] = disarm()
        os.write(writing, json.dumps(told).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"died": True}


def main() -> None:
    template, work = Path(sys.argv[1]), Path(sys.argv[2])
    step = int(sys.argv[3])
    for act in sys.argv[4:]:
        for fault, sticky in ((Fault.DIES, False), (Fault.IO_ERROR, False), (Fault.NO_SPACE, True)):
            nth = 0
            while True:
                folder = work / f"{act}-{fault.name}-{nth}"
                shutil.copytree(template, folder)
                told = run_case(act, folder, nth, fault, sticky=sticky)
                case = {"act": act, "fault": fault.name, "nth": nth, "folder": str(folder), **told}
                sys.stdout.write(json.dumps(case) + "\n")
                if nth > 0 and "answer" in told and told["acts"] < nth:
                    break
                nth = nth + 1 if nth < 6 else nth + step


if __name__ == "__main__":
    main()

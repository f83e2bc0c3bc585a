"""The embedded log's queues keep the contract of all, also between threads and processes."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import Full, LeaseLost, Pinned, StorageFailed
from headwater.log import Settings, Topic
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded.deliveries import select
from headwater.log.embedded.queues import EmbeddedQueues
from headwater.log.queues import Queue
from headwater.testing.groups_contract import ManualClock
from headwater.testing.queues_contract import JOBS, LEASE_S, QueuesContract, ids, put


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedLog]:
    opened = EmbeddedLog(tmp_path / "log", clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def queues(log: EmbeddedLog) -> EmbeddedQueues:
    return EmbeddedQueues(log)


class TestEmbeddedQueues(QueuesContract):
    pass


@pytest.fixture
def jobs(log: EmbeddedLog) -> Topic:
    return Topic(log, log.create(JOBS))


@pytest.fixture
def queue(log: EmbeddedLog, queues: EmbeddedQueues, jobs: Topic) -> Queue:
    queues.create("work", jobs.name, lease_s=LEASE_S, attempts=3)
    return Queue(log, queues, "work")


def test_threads_share_a_queue_without_doubles_or_losses(queue: Queue, jobs: Topic) -> None:
    put(jobs, range(200))
    done: list[int] = []

    def work() -> None:
        while taken := queue.take(7):
            for delivery in taken:
                queue.acknowledge(delivery)
                done.append(delivery.record["id"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(200))


def test_processes_share_a_queue_and_what_a_killed_one_held_comes_back(
    tmp_path: Path, clock: ManualClock, until: Callable[..., None]
) -> None:
    """Nobody's clock moves while they work, so no lease runs out: whoever got a record had it alone."""
    folder = tmp_path / "log"
    log = EmbeddedLog(folder, clock=clock)
    queues = EmbeddedQueues(log)
    jobs = Topic(log, log.create(JOBS))
    put(jobs, range(150))
    queues.create("work", "jobs", lease_s=LEASE_S)
    context = multiprocessing.get_context("spawn")
    done, held, killed = context.Queue(), context.Value("i", 0), context.Event()
    hoarder = context.Process(target=_hoard, args=(str(folder), held))
    worker = context.Process(target=_work, args=(str(folder), done, killed))
    hoarder.start()
    worker.start()
    until(lambda: held.value == 20, what="20 records held by the process to be killed")
    hoarder.kill()
    hoarder.join()
    killed.set()
    finished = [_settled(log), done.get(timeout=30)]
    worker.join()
    counted = Counter(number for each in finished for number in each)
    assert sum(counted.values()) == len(counted) == 130
    clock.pass_s(LEASE_S)
    back = Queue(log, queues, "work").take(50)
    assert {delivery.attempt for delivery in back} == {2}
    assert sorted([*counted, *ids(back)]) == list(range(150))


def _hoard(folder: str, held: Any) -> None:
    log = EmbeddedLog(Path(folder), clock=ManualClock())
    held.value = len(Queue(log, EmbeddedQueues(log), "work").take(20))
    threading.Event().wait()


def _work(folder: str, done: Any, killed: Any) -> None:
    log = EmbeddedLog(Path(folder), clock=ManualClock())
    killed.wait()
    done.put(_settled(log))


def _settled(log: EmbeddedLog) -> list[int]:
    queue = Queue(log, EmbeddedQueues(log), "work")
    settled = []
    while taken := queue.take(3):
        for delivery in taken:
            queue.acknowledge(delivery)
            settled.append(delivery.record["id"])
    return settled


def test_a_waiting_taker_wakes_for_an_append_and_for_a_lease_that_ran_out(
    queue: Queue, jobs: Topic, clock: ManualClock
) -> None:
    got: list[int] = []

    def wait() -> None:
        got.append(queue.take(1, wait_s=20)[0].attempt)

    for act in (lambda: put(jobs, range(1)), lambda: clock.pass_s(LEASE_S)):
        thread = threading.Thread(target=wait)
        thread.start()
        act()
        thread.join()
    assert got == [1, 2]


def test_what_came_back_is_found_without_looking_at_all_that_is_out(
    log: EmbeddedLog, queue: Queue, jobs: Topic, clock: ManualClock
) -> None:
    put(jobs, range(10))
    queue.take(10)
    clock.pass_s(LEASE_S)
    asked: list[str] = []
    with log.catalog.read() as catalog:
        catalog.exec_trace = lambda _, statement, __: asked.append(statement) or True
        found = select(catalog, "work", "until <= ? AND attempt < ?", clock(), 3, limit=4)
        catalog.exec_trace = None
        plan = catalog.execute(f"EXPLAIN QUERY PLAN {asked[0]}", ("work", 0, 3, 4)).fetchall()
    assert len(found) == 4
    assert [row[-1] for row in plan] == ["SEARCH deliveries USING INDEX deliveries_by_time (queue=? AND until<?)"]


def test_dead_lettering_that_fails_leaves_the_record_in_the_queue(log: EmbeddedLog, queue: Queue, jobs: Topic) -> None:
    put(jobs, range(2))
    first, second = queue.take(2)
    log.alter("work.dead", settings=Settings(most_rows=1, when_full="block"))
    queue.reject(first)
    for how in ("block", "drop_newest"):
        log.alter("work.dead", settings=Settings(most_rows=1, when_full=how))
        with pytest.raises(Full, match="'work.dead'"):
            queue.reject(second)
    log.alter("work.dead", settings=Settings())
    queue.reject(second)
    assert sorted(Topic(log, log.topic("work.dead")).read().column("id").to_pylist()) == [0, 1]


def test_what_is_spent_and_not_buried_yet_is_not_handed_out_either(
    log: EmbeddedLog, queue: Queue, jobs: Topic, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.log.embedded.queues.BURIED_AT_ONCE", 1)
    put(jobs, range(3))
    for _ in range(3):
        assert len(queue.take(3)) == 3
        clock.pass_s(LEASE_S)
    put(jobs, range(3, 4))
    assert ids(queue.take(3)) == [3]
    assert Topic(log, log.topic("work.dead")).read().num_rows == 1
    assert [queue.take(3), queue.take(3)] == [[], []]
    assert Topic(log, log.topic("work.dead")).read().num_rows == 3


def test_the_dead_letter_topic_stays_as_long_as_its_queue(log: EmbeddedLog, queue: Queue) -> None:
    with pytest.raises(Pinned, match="would take away what 'work' has yet to read"):
        log.delete("work.dead")


def test_taking_one_by_one_reads_a_chunk_once_in_a_while(
    log: EmbeddedLog, queue: Queue, jobs: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = pa.table({"id": range(4000), "what": ["a rather long description of what to do"] * 4000})
    jobs.append(many, partition=0)
    reads = []
    scan = log.scan
    monkeypatch.setattr(log, "scan", lambda *given, **named: [reads.append(given), scan(*given, **named)][1])
    assert [queue.take(1)[0].offset for _ in range(50)] == list(range(50))
    assert len(reads) == 1


def test_a_record_that_cannot_be_read_does_not_cost_the_others_an_attempt(
    log: EmbeddedLog, queues: EmbeddedQueues, queue: Queue, jobs: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(jobs, range(5))

    def broken(*_: object, **__: object) -> None:
        raise StorageFailed(act="reading", file="chunk", why="Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(log, "scan", broken)
        with pytest.raises(StorageFailed):
            queue.take(5)
    taken = queue.take(5)
    assert ids(taken) == list(range(5))
    assert {delivery.attempt for delivery in taken} == {1}


def test_of_two_who_settle_the_same_delivery_one_is_told(queue: Queue, jobs: Topic) -> None:
    put(jobs, range(30))
    refused: list[str] = []
    for delivery in queue.take(30):

        def settle(act: Callable[..., None], own=delivery) -> None:  # type: ignore[no-untyped-def]
            try:
                act(own)
            except LeaseLost as error:
                refused.append(error.receipt)

        threads = [threading.Thread(target=settle, args=(act,)) for act in (queue.acknowledge, queue.reject)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(refused) == 30

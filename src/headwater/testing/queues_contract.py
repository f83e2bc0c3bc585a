"""What queues of every log backend must do. Subclass `QueuesContract`, give it `log`, `queues` and `clock` fixtures.

`clock` is a `ManualClock` that the log was opened with: leases run out when a test says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from headwater.errors import (
    BadName,
    LeaseLost,
    Missed,
    QueueMismatch,
    QueueNotFound,
    TopicNotFound,
    UsageError,
)
from headwater.log import Log, Settings, Topic, TopicSpec
from headwater.log.queues import Delivery, Queue, Queues
from headwater.records import schema_of
from headwater.testing.groups_contract import ManualClock

JOBS = TopicSpec("jobs", schema_of({"id": "int64", "what": "string"}), key=("id",), partitions=4)
LEASE_S = 10.0


def put(topic: Topic, numbers: range) -> None:
    topic.append([{"id": n, "what": f"job {n}"} for n in numbers])


def ids(deliveries: Sequence[Delivery]) -> list[int]:
    return sorted(delivery.record["id"] for delivery in deliveries)


class QueuesContract:
    """`log` is an empty log of the backend under test, `queues` its queues. Three attempts, ten seconds a lease."""

    @pytest.fixture
    def jobs(self, log: Log) -> Topic:
        return Topic(log, log.create(JOBS))

    @pytest.fixture
    def queue(self, log: Log, queues: Queues, jobs: Topic) -> Queue:
        queues.create("work", jobs.name, lease_s=LEASE_S, attempts=3)
        return Queue(log, queues, "work")

    def dead(self, log: Log) -> list[int]:
        return sorted(Topic(log, log.topic("work.dead")).read().column("id").to_pylist())

    # --- taking and acknowledging ---

    def test_each_record_is_handed_out_once_and_is_gone_when_acknowledged(
        self, queue: Queue, jobs: Topic, clock: ManualClock
    ) -> None:
        put(jobs, range(20))
        first, second = queue.take(12), queue.take(12)
        assert (len(first), len(second)) == (12, 8)
        assert ids([*first, *second]) == list(range(20))
        assert queue.take(12) == []
        for delivery in [*first, *second]:
            queue.acknowledge(delivery)
        clock.pass_s(100)
        assert queue.take(12) == []

    def test_a_delivery_says_what_and_where_and_until_when(
        self, log: Log, queue: Queue, jobs: Topic, clock: ManualClock
    ) -> None:
        put(jobs, range(7, 8))
        (delivery,) = queue.take()
        assert delivery.record == {"id": 7, "what": "job 7"}
        assert (delivery.topic, delivery.offset, delivery.attempt) == ("jobs", 0, 1)
        assert delivery.until.timestamp() * 1e6 == clock() + LEASE_S * 1e6
        (batch,) = log.scan("jobs", delivery.partition, delivery.offset, delivery.offset + 1)
        assert batch.to_pylist() == [delivery.record]

    def test_one_at_a_time_reaches_every_partition(self, queue: Queue, jobs: Topic) -> None:
        put(jobs, range(40))
        taken = [queue.take(1)[0] for _ in range(8)]
        assert {delivery.partition for delivery in taken} == {0, 1, 2, 3}

    def test_a_lease_that_ran_out_is_handed_out_again_and_the_first_holder_has_lost_it(
        self, queue: Queue, jobs: Topic, clock: ManualClock
    ) -> None:
        put(jobs, range(1))
        (first,) = queue.take()
        clock.pass_s(LEASE_S - 1)
        assert queue.take() == []
        clock.pass_s(1)
        (second,) = queue.take()
        assert (second.record, second.attempt) == (first.record, 2)
        for settle in (queue.acknowledge, queue.release, queue.reject):
            with pytest.raises(LeaseLost, match="queue 'work' has no lease .* it ran out or was settled"):
                settle(first)
        queue.acknowledge(second)
        with pytest.raises(LeaseLost):
            queue.acknowledge(second)

    def test_late_but_before_anyone_else_took_it_still_counts(
        self, queue: Queue, jobs: Topic, clock: ManualClock
    ) -> None:
        put(jobs, range(1))
        (delivery,) = queue.take()
        clock.pass_s(LEASE_S + 1)
        queue.acknowledge(delivery)
        assert queue.take() == []

    def test_an_extended_lease_runs_out_later_and_is_no_attempt(
        self, queue: Queue, jobs: Topic, clock: ManualClock
    ) -> None:
        put(jobs, range(1))
        (delivery,) = queue.take()
        for _ in range(3):
            clock.pass_s(LEASE_S - 1)
            delivery = queue.extend(delivery)
            assert delivery.until.timestamp() * 1e6 == clock() + LEASE_S * 1e6
        assert queue.take() == []
        longer = queue.extend(delivery, lease_s=100)
        assert queue.extend(longer, lease_s=1).until == longer.until
        clock.pass_s(100)
        (again,) = queue.take()
        assert (again.record, again.attempt) == (delivery.record, 2)

    def test_a_lost_lease_cannot_be_extended(self, queue: Queue, jobs: Topic, clock: ManualClock) -> None:
        put(jobs, range(3))
        ran_out, released, done = queue.take(3)
        queue.release(released)
        queue.acknowledge(done)
        clock.pass_s(LEASE_S)
        first, second = queue.take(3)
        assert (first.attempt, second.attempt) == (2, 2)
        for lost in (ran_out, released, done):
            with pytest.raises(LeaseLost, match="it ran out or was settled; nothing was changed. .* extend the lease"):
                queue.extend(lost)
        queue.acknowledge(first)  # whose it is now is not disturbed
        queue.acknowledge(second)

    def test_a_lease_that_ran_out_is_extended_if_nobody_has_taken_the_record_since(
        self, queue: Queue, jobs: Topic, clock: ManualClock
    ) -> None:
        put(jobs, range(1))
        (delivery,) = queue.take()
        clock.pass_s(LEASE_S + 1)
        queue.extend(delivery)
        assert queue.take() == []
        queue.acknowledge(delivery)

    def test_a_lease_is_not_extended_by_nothing(self, queue: Queue, jobs: Topic) -> None:
        put(jobs, range(1))
        (delivery,) = queue.take()
        for wrong in (0, -1.5):
            with pytest.raises(UsageError, match="Give a time above 0 s"):
                queue.extend(delivery, lease_s=wrong)

    def test_what_comes_back_goes_before_what_is_new(self, queue: Queue, jobs: Topic) -> None:
        put(jobs, range(10))
        (first,) = queue.take()
        queue.release(first)
        (again,) = queue.take()
        assert (again.record, again.attempt) == (first.record, 2)
        with pytest.raises(LeaseLost):
            queue.acknowledge(first)

    def test_a_receipt_that_never_was_is_no_lease(self, queues: Queues, queue: Queue, jobs: Topic) -> None:
        put(jobs, range(1))
        queue.take()
        for wrong in ("", "0-0-", "0-0-0", "x", "-1-2", "²-0-x"):
            with pytest.raises(LeaseLost):
                queues.acknowledge("work", wrong)

    # --- dead letters ---

    def test_after_the_last_attempt_it_is_a_dead_letter_whether_it_ran_out_or_was_released(
        self, log: Log, queue: Queue, jobs: Topic, clock: ManualClock
    ) -> None:
        put(jobs, range(2))
        for attempt in (1, 2):
            assert [delivery.attempt for delivery in queue.take(5)] == [attempt, attempt]
            clock.pass_s(LEASE_S)
        last = queue.take(5)
        queue.release(last[0])
        assert self.dead(log) == ids(last[:1])
        clock.pass_s(LEASE_S)
        assert queue.take(5) == []
        assert self.dead(log) == [0, 1]
        assert sum(row.taken + row.returned + row.waiting for row in queue.lag()) == 0

    def test_a_rejected_record_is_a_dead_letter_at_once(self, log: Log, queue: Queue, jobs: Topic) -> None:
        put(jobs, range(3))
        taken = queue.take(3)
        queue.reject(taken[1])
        assert self.dead(log) == ids(taken[1:2])
        with pytest.raises(LeaseLost):
            queue.reject(taken[1])
        assert self.dead(log) == ids(taken[1:2])

    def test_dead_letters_are_replayed_once_and_taken_afresh(self, log: Log, queue: Queue, jobs: Topic) -> None:
        put(jobs, range(6))
        for delivery in queue.take(6):
            queue.reject(delivery)
        assert queue.dead() == 6
        assert queue.replay(max_rows=2) == 2
        assert queue.replay() == 4
        assert queue.replay() == 0
        assert (queue.dead(), self.dead(log)) == (0, list(range(6)))
        again = queue.take(10)
        assert ids(again) == list(range(6))
        assert {delivery.attempt for delivery in again} == {1}
        queue.reject(again[0])
        assert queue.replay() == 1

    def test_a_topic_that_got_a_column_takes_its_dead_letters_along(self, log: Log, queue: Queue, jobs: Topic) -> None:
        put(jobs, range(1))
        (early,) = queue.take()
        jobs.alter(schema=JOBS.schema.append(pa.field("why", pa.string())))
        jobs.append([{"id": 1, "why": "new"}])
        (late,) = queue.take()
        assert late.record == {"id": 1, "what": None, "why": "new"}
        queue.reject(early)
        queue.reject(late)
        rows = Topic(log, log.topic("work.dead")).read().sort_by("id")
        assert rows.column("why").to_pylist() == [None, "new"]

    # --- what is gone ---

    def test_records_removed_before_they_were_taken_are_told_with_their_range(self, log: Log, queues: Queues) -> None:
        ring = TopicSpec("ring", JOBS.schema, partitions=1, settings=Settings(most_rows=4))
        topic = Topic(log, log.create(ring))
        queues.create("work", "ring", lease_s=LEASE_S, attempts=3)
        queue = Queue(log, queues, "work")
        put(topic, range(4))
        queue.release(queue.take()[0])
        put(topic, range(4, 7))
        for _ in range(2):
            with pytest.raises(Missed) as told:
                queue.take(5)
            assert (told.value.topic, told.value.asked, told.value.first) == ("ring", 0, 3)
        assert queue.lag()[0].missed == 3
        assert queues.skip("work") == {0: (0, 3)}
        assert queues.skip("work") == {}
        assert ids(queue.take(5)) == [3, 4, 5, 6]

    # --- queues themselves ---

    def test_lag_says_how_much_waits_is_taken_and_came_back(
        self, queue: Queue, jobs: Topic, clock: ManualClock
    ) -> None:
        put(jobs, range(10))
        queue.take(3)
        clock.pass_s(LEASE_S)
        queue.acknowledge(queue.take(1)[0])
        queue.take(1)
        rows = queue.lag()
        assert [sum(getattr(row, name) for row in rows) for name in ("waiting", "taken", "returned", "missed")] == [
            7,
            1,
            1,
            0,
        ]

    def test_a_queue_made_again_alike_is_the_same_and_otherwise_is_refused(self, queues: Queues, queue: Queue) -> None:
        again = queues.create(queue.name, "jobs", lease_s=LEASE_S, attempts=3)
        assert queues.queues() == [again]
        assert again.dead == "work.dead"
        with pytest.raises(QueueMismatch, match="another attempts: it has 3, declared is 4"):
            queues.create("work", "jobs", lease_s=LEASE_S, attempts=4)

    def test_a_queue_may_begin_at_the_end_and_two_queues_do_not_share(self, log: Log, queues: Queues) -> None:
        jobs = Topic(log, log.create(JOBS))
        put(jobs, range(3))
        queues.create("late", "jobs", start="end")
        queues.create("all", "jobs", dead="graveyard")
        put(jobs, range(3, 5))
        assert ids(Queue(log, queues, "late").take(9)) == [3, 4]
        assert ids(Queue(log, queues, "all").take(9)) == [0, 1, 2, 3, 4]
        with pytest.raises(UsageError, match="'graveyard' is the dead-letter topic of queue 'all'"):
            queues.create("third", "jobs", dead="graveyard")

    def test_a_removed_queue_is_forgotten_and_its_dead_letters_stay(
        self, log: Log, queues: Queues, queue: Queue
    ) -> None:
        queues.remove("work")
        assert queues.queues() == []
        assert self.dead(log) == []
        with pytest.raises(QueueNotFound, match="there is no queue 'work'. Queues here: none"):
            queue.take()

    def test_what_cannot_be_a_queue_is_refused(self, log: Log, queues: Queues, jobs: Topic) -> None:
        log.create(TopicSpec("people", JOBS.schema, key=("id",), kind="table"))
        with pytest.raises(UsageError, match="'people' is a table"):
            queues.create("q", "people")
        with pytest.raises(TopicNotFound):
            queues.create("q", "nope")
        with pytest.raises(BadName, match="cannot name a queue"):
            queues.create("a b", "jobs")
        with pytest.raises(UsageError, match="its own dead-letter topic"):
            queues.create("q", "jobs", dead=jobs.name)
        with pytest.raises(UsageError, match="Give a lease above 0 s"):
            queues.create("q", "jobs", lease_s=0)
        assert queues.queues() == []

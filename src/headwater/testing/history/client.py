"""One process of a history: it appends to a log and polls it, by nothing but the protocol, and records both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from headwater.log import Appended, Log, Producer, TopicSpec
from headwater.records import OFFSET, schema_of
from headwater.testing.history.events import Partition, Range, Record
from headwater.testing.history.recorder import Recorder

SCHEMA = schema_of({"value": "string", "filler": "string"})


def spec_of(topic: str, partitions: int) -> TopicSpec:
    """A topic that a client can use."""
    return TopicSpec(topic, SCHEMA, partitions=partitions)


class Client:
    """Polls go on where the last one ended, over all partitions of all its topics, up to one append boundary."""

    def __init__(self, log: Log, recorder: Recorder, topics: Sequence[str]) -> None:
        self.log = log
        self._recorder = recorder
        self._partitions = [(name, number) for name in topics for number in range(log.topic(name).partitions)]
        self._topics = list(topics)
        self._next: dict[Partition, int] = dict.fromkeys(self._partitions, 0)

    def begin(self, producer: str) -> Producer:
        with self._recorder.operation("begin", producer=producer) as answer:
            granted = self.log.begin(producer)
            answer(epoch=granted.epoch)
        return granted

    def append(
        self,
        values: Mapping[Partition, Sequence[str]],
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
        filler: int = 0,
        before: Callable[[], object] | None = None,
    ) -> Appended:
        """One append of values to any partitions. `before` is called when all is staged and nothing is asked for:
        whoever polls then must not see it. With a filler, each value takes so many bytes more."""
        parts = []
        for (topic, partition), own in values.items():
            batch = pa.RecordBatch.from_pydict({"value": list(own), "filler": ["." * filler] * len(own)}, schema=SCHEMA)
            parts.append(self.log.stage(topic, partition, batch))
        if before is not None:
            before()
        asked = tuple(Record(*place, value) for place, own in values.items() for value in own)
        who = {"producer": producer.name, "epoch": producer.epoch, "sequence": sequence} if producer else {}
        with self._recorder.operation("append", records=asked, **who) as answer:
            done = self.log.append(parts, producer=producer, sequence=sequence)
            answer(records=tuple(_placed(values, done)), repeated=done.repeated)
        return done

    def poll(self, *, final: bool = False) -> int:
        """How many records were new."""
        with self._recorder.operation("poll", final=final) as answer:
            ends = self.log.snapshot(self._topics).position
            ranges = tuple(Range(*place, self._next[place], ends.offset(*place)) for place in self._partitions)
            records = tuple(record for wanted in ranges for record in self._records(wanted))
            answer(ranges=ranges, records=records)
        self._next = {wanted.place: wanted.end for wanted in ranges}
        return len(records)

    def _records(self, wanted: Range) -> Iterator[Record]:
        found = self.log.scan(*wanted.place, wanted.start, wanted.end, columns=["value"], metadata=True)
        for batch in found:
            for value, offset in zip(batch.column("value").to_pylist(), batch.column(OFFSET).to_pylist(), strict=True):
                yield Record(*wanted.place, value, offset)


def _placed(values: Mapping[Partition, Sequence[str]], done: Appended) -> Iterator[Record]:
    """An append is a run in each of its partitions, up to the end that it was told."""
    for place, own in values.items():
        first = done.position.offset(*place) - len(own)
        for number, value in enumerate(own):
            yield Record(*place, value, first + number)

"""What a process remembers of topics is checked in the transaction that uses it, and costs one row to check."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import TopicNotFound
from headwater.log import Settings, Topic, TopicSpec
from headwater.log.embedded import EmbeddedLog, topics
from headwater.log.embedded.rows import select_chunks
from headwater.records import schema_of

NUMBERS = TopicSpec("numbers", schema_of({"n": "int64"}), partitions=1)


def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    load = topics.load_topics
    monkeypatch.setattr(topics, "load_topics", lambda *given, **named: [seen.append(named), load(*given, **named)][1])
    return seen


def test_scans_load_no_topic_that_is_as_it_was(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        log.create(TopicSpec(f"other{number}", NUMBERS.schema))
    topic = Topic(log, log.create(NUMBERS))
    topic.append([{"n": 1}])
    log.topic("numbers")
    loaded = loads(monkeypatch)
    for _ in range(5):
        assert [batch.to_pylist() for batch in log.scan("numbers", 0, 0, 1)] == [[{"n": 1}]]
    assert loaded == []


def test_what_another_process_altered_is_loaded_once_and_alone(
    log: EmbeddedLog, other: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(log, log.create(NUMBERS))
    topic.append([{"n": 1}])
    other.alter("numbers", schema=NUMBERS.schema.append(pa.field("why", pa.string())))
    loaded = loads(monkeypatch)
    for _ in range(3):
        assert next(log.scan("numbers", 0, 0, 1)).to_pylist() == [{"n": 1, "why": None}]
    assert loaded == [{"only": "numbers"}]
    other.alter("numbers", settings=Settings(retain_s=5))
    assert log.topic("numbers").settings.retain_s == 5


def test_a_scan_goes_on_through_records_of_a_schema_that_came_after_it_began(
    log: EmbeddedLog, other: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.log.embedded.read.PAGE_CHUNKS", 1)
    topic = Topic(log, log.create(NUMBERS))
    topic.append([{"n": 1}])
    scan = log.scan("numbers", 0, 0, 9)
    seen = next(scan).to_pylist()
    other.alter("numbers", schema=NUMBERS.schema.append(pa.field("why", pa.string())))
    Topic(other, other.topic("numbers")).append([{"n": 2, "why": "new"}])
    seen += next(scan).to_pylist()
    assert seen == [{"n": 1}, {"n": 2}]


def test_a_topic_that_another_process_made_anew_is_another_one(log: EmbeddedLog, other: EmbeddedLog) -> None:
    spec = log.create(NUMBERS)
    parts = Topic(log, spec).parts([{"n": 1}])
    log.append(parts)
    scan = log.scan("numbers", 0, 0, 9)
    other.delete("numbers")
    text = TopicSpec("numbers", schema_of({"text": "string"}), partitions=1)
    Topic(other, other.create(text)).append([{"text": "a"}])
    with pytest.raises(TopicNotFound):
        next(scan)
    with pytest.raises(TopicNotFound):  # never numbers among texts
        log.append(parts)
    assert next(log.scan("numbers", 0, 0, 9)).to_pylist() == [{"text": "a"}]
    other.delete("numbers")
    Topic(other, other.create(text)).append([{"text": "a"}])
    assert log.snapshot(["numbers"]).position.total == 1
    Topic(log, log.topic("numbers")).append([{"text": "b"}])
    assert Topic(log, text).read()["text"].to_pylist() == ["a", "b"]


def test_a_scan_asks_where_it_stands_and_lists_its_chunks_with_their_data_by_one_statement_each(
    log: EmbeddedLog, executed: Callable[[], list[str]]
) -> None:
    topic = Topic(log, log.create(NUMBERS))
    for number in range(5):
        topic.append([{"n": number}])
    log.topic("numbers")
    executed()
    assert sum(batch.num_rows for batch in log.scan("numbers", 0, 0, 5, metadata=True)) == 5
    version, begin, standing, listing, commit = executed()
    assert (version, begin, commit) == ('pragma "data_version"', "BEGIN", "COMMIT")
    assert ["FROM ends" in standing, "FROM chunks" in listing] == [True] * 2


def test_a_topic_is_looked_up_again_only_after_something_has_changed(
    log: EmbeddedLog, other: EmbeddedLog, executed: Callable[[], list[str]]
) -> None:
    log.create(NUMBERS)

    def looked_up() -> bool:
        executed()
        log.topic("numbers")
        return any("FROM topics" in statement for statement in executed())

    assert [looked_up(), looked_up(), looked_up()] == [True, False, False]
    Topic(other, NUMBERS).append([{"n": 1}])
    assert [looked_up(), looked_up()] == [True, False]
    other.alter("numbers", settings=Settings(retain_s=5))
    assert log.topic("numbers").settings.retain_s == 5
    other.delete("numbers")
    with pytest.raises(TopicNotFound):
        log.topic("numbers")
    assert log.create(NUMBERS) == NUMBERS == log.topic("numbers")


def test_each_thread_finds_what_another_one_altered(log: EmbeddedLog) -> None:
    log.create(NUMBERS)
    seen = [log.topic("numbers").settings.retain_s]
    thread = threading.Thread(target=lambda: log.alter("numbers", settings=Settings(retain_s=5)))
    thread.start()
    thread.join()
    seen.append(log.topic("numbers").settings.retain_s)
    assert seen == [None, 5]


def test_a_page_of_a_scan_ends_with_the_chunk_that_is_too_much_for_it(
    log: EmbeddedLog, executed: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(log, log.create(NUMBERS))
    for number in range(4):
        topic.append([{"n": number}])
    with log.catalog.read() as catalog:
        size = select_chunks(catalog, log.known("numbers").id, "true", ())[0].size
    monkeypatch.setattr("headwater.log.embedded.read.PAGE_BYTES", 2 * size - 1)
    executed()
    scan = log.scan("numbers", 0, 0, 4)
    assert [next(scan).to_pylist(), next(scan).to_pylist()] == [[{"n": 0}], [{"n": 1}]]
    assert executed().count("BEGIN") == 1
    assert [batch.to_pylist() for batch in scan] == [[{"n": 2}], [{"n": 3}]]
    assert executed().count("BEGIN") == 1

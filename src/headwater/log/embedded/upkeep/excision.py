"""Excision: all records of a key, or matching a condition, leave the log as if they had never been; offsets stay.

    1  Every chunk that has such records is written anew without them and swapped; their keys leave `versions`.
    2  The old files are removed at once, without a grace period, and so is all other garbage of the topic.
    3  SQLite overwrites what it deletes (secure_delete); the WAL is moved into the main file and truncated.

Afterwards no file of the log has the bytes. A crash in between leaves the act half done: run it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import UsageError
from headwater.log.embedded.checking import Advance, Tally
from headwater.log.embedded.rows import Chunk, KnownTopic, Swapped, select_chunks
from headwater.log.embedded.upkeep.garbage import orphans, remove_files
from headwater.log.embedded.upkeep.rewriting import Rewriting, slices
from headwater.log.embedded.upkeep.swap import NewChunk, swap
from headwater.log.versions import key_bytes
from headwater.records import OFFSET

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

Condition = Callable[[pa.Table], Any]
"""From records to a mask: which of them are to go. Asked about some at a time: each record is judged alone."""


@dataclass(frozen=True)
class Forgotten:
    topic: str
    records: int
    chunks: int
    files_removed: int
    unlisted_files: tuple[str, ...]
    """Of appends under way: nothing lists them yet. They may hold such records, and are appended or collected later."""


def forget(
    log: EmbeddedLog,
    topic: KnownTopic,
    *,
    keys: Sequence[Mapping[str, Any]] = (),
    condition: Condition | None = None,
    advance: Advance | None = None,
) -> Forgotten:
    going = condition if condition is not None else of_keys(topic, keys)
    records, rewritten = 0, 0
    done = False
    while not done:  # until a pass finds nothing: somebody else's upkeep may have swapped a chunk under our hands
        done = True
        with log.catalog.read() as catalog:
            listed = select_chunks(catalog, topic.id, "true", ())
        tally = Tally(sum(chunk.size for chunk in listed), advance)  # of each pass anew; the last finds nothing
        for chunk in listed:
            tally.advance(chunk.size)
            try:
                if not any(_mask(going, some).any() for some in slices(log, topic, chunk)):
                    continue
                new, gone = _without(log, topic, chunk, going)
            except Swapped:
                done = False
                continue
            done = False
            if swap(log, [chunk], new):
                records += gone
                rewritten += 1
    log.committer.run(lambda catalog: _forget_versions(catalog, topic, keys))
    removed = _remove_garbage(log, topic)
    log.forget_mapped()
    log.catalog.truncate_wal()
    prefix = f"chunks/{topic.spec.name}/"
    waiting = tuple(name for name in orphans(log) if name.startswith(prefix))
    return Forgotten(topic.spec.name, records, rewritten, removed, waiting)


def count(log: EmbeddedLog, topic: KnownTopic, keys: Sequence[Mapping[str, Any]]) -> int:
    """How many records of these keys there are now. Who swaps chunks meanwhile makes it count anew."""
    going = of_keys(topic, keys)
    while True:
        with log.catalog.read() as catalog:
            listed = select_chunks(catalog, topic.id, "true", ())
        try:
            return sum(int(_mask(going, some).sum()) for chunk in listed for some in slices(log, topic, chunk))
        except Swapped:
            continue


def _without(log: EmbeddedLog, topic: KnownTopic, chunk: Chunk, going: Condition) -> tuple[list[NewChunk], int]:
    rewriting, gone = Rewriting(log, topic, [chunk]), 0
    try:
        for some in slices(log, topic, chunk):
            mask = _mask(going, some)
            rewriting.add(some.filter(pa.array(~mask)))
            gone += int(mask.sum())
        return rewriting.finish(), gone
    except BaseException:
        rewriting.discard()
        raise


def _mask(going: Condition, some: pa.Table) -> npt.NDArray[np.bool_]:
    return np.asarray(going(some.drop_columns([OFFSET])), bool)


def of_keys(topic: KnownTopic, keys: Sequence[Mapping[str, Any]]) -> Condition:
    """Whether a record has one of these keys; `UsageError` if they are none of this topic's."""
    columns, name = topic.spec.key, topic.spec.name
    if not columns:
        raise UsageError(what=f"topic {name!r} has no key", do="Give a condition instead")
    if not keys or any(set(key) != set(columns) for key in keys):
        raise UsageError(what=f"keys of {name!r} are given as {{{', '.join(columns)}}}", do="Name each column")
    typed = pa.schema([topic.spec.schema.field(column) for column in columns])
    try:
        wanted = pa.Table.from_pylist([dict(key) for key in keys], schema=typed)
    except (pa.ArrowException, OverflowError) as error:
        told = ", ".join(f"{field.name} {field.type}" for field in typed)
        raise UsageError(what=f"a key does not fit that of {name!r}: {error}", do=f"Its key: {told}") from None

    def matches(records: pa.Table) -> Any:
        if len(columns) == 1:
            return pc.is_in(records[columns[0]], value_set=wanted[columns[0]].combine_chunks())
        mask = np.zeros(records.num_rows, bool)
        for place in range(wanted.num_rows):
            one = np.ones(records.num_rows, bool)
            for column in columns:
                same = pc.equal(records[column], wanted[column][place])
                one &= pc.fill_null(same, False).to_numpy(zero_copy_only=False)
            mask |= one
        return mask

    return matches


def _forget_versions(catalog: apsw.Connection, topic: KnownTopic, keys: Sequence[Mapping[str, Any]]) -> None:
    if topic.spec.versioned:
        rows = [(topic.id, key_bytes(tuple(key[name] for name in topic.spec.key))) for key in keys]
        catalog.executemany("DELETE FROM versions WHERE topic = ? AND key = ?", rows)


def _remove_garbage(log: EmbeddedLog, topic: KnownTopic) -> int:
    with log.catalog.read() as catalog:
        names = [str(row[0]) for row in catalog.execute("SELECT file FROM garbage")]
    own = [name for name in names if f"chunks/{topic.spec.name}/" in name]
    remove_files(log, own)
    return len(own)

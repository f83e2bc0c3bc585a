"""Where the records of a topic have gone: what copies them, what was made from them, through any number of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.errors import NotASource
from headwater.log.queues import QueueSpec
from headwater.process.version import Version

SIDES = ("late", "dead")
"""What pipelines put beside their topics: see `process.side`."""


@dataclass(frozen=True)
class Reach:
    copies: tuple[str, ...]
    """The topic itself, then the dead-letter topics of its queues: records as they were, with their keys."""
    versions: tuple[Version, ...]
    """All versions of all pipelines that were made from it, those that were dropped too: these may have left files."""
    letters: tuple[str, ...]
    """Dead-letter topics of queues over what was made from it. Their records have no key that could be known."""


def topics_of(version: Version) -> tuple[str, ...]:
    """Its topic and those beside it, whether they are there or not."""
    return (version.topic, *sides_of(version))


def sides_of(version: Version) -> tuple[str, ...]:
    return tuple(f"{version.topic}.{side}" for side in SIDES)


def reach_of(topic: str, versions: Mapping[str, Sequence[Version]], queues: Sequence[QueueSpec]) -> Reach:
    """`NotASource` for what a pipeline makes. Who was built before inputs were written down counts as a reader."""
    every = [each for of in versions.values() for each in of]
    for each in every:
        if each.state != "dropped" and topic in topics_of(each):
            raise NotASource(topic=topic, made_by=each.name, reads=tuple(each.inputs.values()))
    copies = [topic]
    while more := [queue.dead for queue in queues if queue.topic in copies and queue.dead not in copies]:
        copies += more
    reached, found, letters = set(copies), list[Version](), list[str]()
    grown = True
    while grown:
        grown = False
        for each in every:
            if each not in found and (not each.description or reached & set(each.inputs.values())):
                found.append(each)
                reached |= set(topics_of(each))
                grown = True
        for queue in queues:
            if queue.topic in reached and queue.dead not in reached:
                letters.append(queue.dead)
                reached.add(queue.dead)
                grown = True
    return Reach(tuple(copies), tuple(found), tuple(letters))

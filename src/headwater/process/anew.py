"""Which versions of pipelines are thrown away and begin again from the log, so that nothing of a record stays in them.

State cannot be searched for a record, and Spark keeps what was state for many batches. But all of it is derived: so the
versions that were made from the record go, and those of them that are current begin again as a new version of the same
code. Views that share a Spark query with one of them have their state in the same files, and begin again with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import InputsGone
from headwater.log.position import Position
from headwater.log.protocol import Log, Progress
from headwater.process.checkpoint import BEFORE_FIRST
from headwater.process.reach import Reach, shared_queries
from headwater.process.rebuild import refuse_lost_inputs
from headwater.process.version import Version


@dataclass(frozen=True)
class Anew:
    going: tuple[Version, ...]
    queries: tuple[Path, ...]
    """Folders of shared queries of which nobody is left, to be removed."""
    kept: Mapping[Path, str]
    """Those that stay though they have state of one that goes, each with the reason."""


def what_begins_anew(
    log: Log, root: Path, versions: Mapping[str, Sequence[Version]], reach: Reach, *, from_retained: bool
) -> Anew:
    """`InputsGone` if one that was made from the records cannot be built again in full, unless `from_retained`."""
    there = [each for of in versions.values() for each in of if each.state != "dropped"]
    touched = [each for each in reach.versions if each.state != "dropped" and _has_run(log, root, each)]
    going = with_readers(touched, there)
    if not from_retained:
        refuse_incomplete(log, going)
    queries, kept = [], {}
    for folder, producers in shared_queries(root, reach.versions).items():
        tenants = [each for each in there if each.producer in producers]
        more = with_readers([*going, *tenants], there)
        try:
            refuse_incomplete(log, [each for each in more if each not in going], among=more)
        except InputsGone as lost:
            kept[folder] = f"{lost.view!r} shares it and cannot be built again: some of {lost.topic!r} was removed"
            continue
        going = more
        queries.append(folder)
    return Anew(tuple(going), tuple(queries), kept)


def with_readers(some: Sequence[Version], there: Sequence[Version]) -> list[Version]:
    """These and whoever reads them, directly or not."""
    found = list(dict.fromkeys(_place(each) for each in some))
    by_place = {_place(each): each for each in there}
    for place in found:  # grows while it is gone through
        topic = by_place[place].topic
        found += [_place(each) for each in there if topic in each.inputs.values() and _place(each) not in found]
    return [by_place[place] for place in found]


def refuse_incomplete(log: Log, going: Iterable[Version], *, among: Iterable[Version] | None = None) -> None:
    """`InputsGone` if a current one of them would not find all that it has read; what begins again itself is whole."""
    going = list(going)
    made = {each.topic for each in (going if among is None else among)}
    for each in going:
        if each.state == "current":
            refuse_lost_inputs(log, each.name, [topic for topic in each.inputs.values() if topic not in made])


def begin_where_it_began(log: Log, old: Version, new: Version, replaced: Iterable[str]) -> None:
    """A stream that was told to begin elsewhere than at the start: its new version begins there too, once only.

    In an input that begins again itself, offsets are others: that is read from its start.
    """
    begun = log.covered(old.producer, sequence=BEFORE_FIRST)
    if begun is not None and log.covered(new.producer) is None:
        begin = begun.progress.end.only([topic for topic in old.inputs.values() if topic not in set(replaced)])
        progress = Progress(Position(), begin)
        log.append([], producer=log.begin(new.producer), sequence=BEFORE_FIRST, progress=progress)


def _has_run(log: Log, root: Path, version: Version) -> bool:
    """One that was never started has no state and no files. It need not begin again: a second call finds it so."""
    covered = log.covered(version.producer)
    return version.folder(root).exists() or (covered is not None and covered.sequence != BEFORE_FIRST)


def _place(version: Version) -> tuple[str, int]:
    return version.name, version.version

"""Which versions of pipelines are thrown away and begin again from the log, so that nothing of a record stays in them.

State cannot be searched for a record. But all of it is derived: so the versions that were made from the record go, and
those of them that are current begin again as a new version of the same code. State is in the folder of its version, so
views that only share a Spark query with one of them go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from headwater.log.position import Position
from headwater.log.protocol import Log, Progress
from headwater.process.checkpoint import BEFORE_FIRST
from headwater.process.reach import Reach
from headwater.process.rebuild import refuse_lost_inputs
from headwater.process.version import Version


def what_begins_anew(
    log: Log, root: Path, versions: Mapping[str, Sequence[Version]], reach: Reach, *, from_retained: bool
) -> list[Version]:
    """`InputsGone` if one that was made from the records cannot be built again in full, unless `from_retained`."""
    there = [each for of in versions.values() for each in of if each.state != "dropped"]
    touched = [each for each in reach.versions if each.state != "dropped" and _has_run(log, root, each)]
    going = with_readers(touched, there)
    if not from_retained:
        refuse_incomplete(log, going)
    return going


def with_readers(some: Sequence[Version], there: Sequence[Version]) -> list[Version]:
    """These and whoever reads them, directly or not."""
    found = list(dict.fromkeys(_place(each) for each in some))
    by_place = {_place(each): each for each in there}
    for place in found:  # grows while it is gone through
        topic = by_place[place].topic
        found += [_place(each) for each in there if topic in each.inputs.values() and _place(each) not in found]
    return [by_place[place] for place in found]


def refuse_incomplete(log: Log, going: Sequence[Version]) -> None:
    """`InputsGone` if a current one of them would not find all that it has read; what begins again itself is whole."""
    made = {each.topic for each in going}
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

"""A store whose rows are not those of this log: the log was restored to an earlier state, and the store was not.

To go on from its mark would be wrong for ever: what the log no longer has would stay, and what it has instead, at the
same offsets, would be left out. So the mark is compared with the log before anything is read or applied:

    1  It is not beyond the log's end.
    2  The append that it names is one of the view's pipeline, and covers the inputs that the mark says.

2 finds a log that has gone on since it was restored. It is looked at whenever a run begins and whenever a store is
reached again, so a log that was restored meets its stores before it has gone on. One that comes back later is taken for
ours if, by chance, the append of that number covers the same positions: numbers go on from where the log was restored.
"""

from __future__ import annotations

from headwater.errors import StoreAstray, TopicNotFound
from headwater.log.protocol import Log
from headwater.serve.store import NOTHING, Mark, Target


def astray(log: Log, topic: str, producer: str, mark: Mark) -> str | None:
    """Why a store with this mark is not one of this log; None if it is."""
    if mark == NOTHING:
        return None
    try:
        newest = log.snapshot([topic])
    except TopicNotFound:
        return f"it holds append {mark.number}, and the log has no topic {topic!r}"
    if mark.number > newest.number or not newest.position.covers(mark.position):
        return f"it stands at append {mark.number}, {mark.position}; the log ends at {newest.number}, {newest.position}"
    covered = log.covered(producer, at=mark.number)
    if covered is None or covered.number != mark.number or covered.progress.end != mark.covers:
        return f"its append {mark.number}, which covers {mark.covers}, is not in the log"
    return None


def refuse_astray(log: Log, topic: str, producer: str, store: Target, *, view: str) -> None:
    """For who only reads."""
    why = astray(log, topic, producer, store.mark())
    if why is not None:
        store.close()
        raise StoreAstray(view=view, why=why)


def begin(log: Log, topic: str, producer: str, store: Target) -> Mark:
    """For who applies: where the store goes on. One that is astray is emptied, and filled anew."""
    mark = store.mark()
    if astray(log, topic, producer, mark) is None:
        return mark
    store.clear()
    return store.mark()

"""How much state each bucket of a pipeline holds, and when something is due there, after its last batch. The sizes are
for people, what is due is for `process.ticks`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.process.keyed import expire
from headwater.process.keyed.expiry import first_due
from headwater.process.keyed.keeping import newest, placed
from headwater.process.keyed.manifest import Manifest
from headwater.process.keyed.spreading import WHOLE


def summary(folder: Path) -> list[dict[str, Any]]:
    """One dict for each operator, bucket and arrangement of the pipeline in that folder.

    Keys: operator, level, bucket, arrangement, rows, bytes, chunks, runs; and `due`, a moment in µs, of the queue of an
    operator that waits for ticks. Rows that merging will yet combine count. Bucket "all": they are kept as one.
    """
    operators, buckets = newest(folder)
    found = []
    for place, manifests in buckets.items():
        level, bucket = placed(place)
        for name, manifest in manifests.items():
            number, _, arrangement = name.partition(" ")
            operator = f"{number} {operators[number]}"
            which = "all" if bucket == WHOLE else bucket
            where = {"operator": operator, "level": level, "bucket": which, "arrangement": arrangement}
            due = _due(operators[number], arrangement, manifest)
            found.append({**where, **asdict(manifest.size), **({} if due is None else {"due": due})})
    return sorted(found, key=lambda each: (each["level"], each["operator"], each["bucket"], each["arrangement"]))


def _due(operator: str, arrangement: str, manifest: Manifest) -> int | None:
    if operator != expire.Expire.__name__ or arrangement != expire.DUE:
        return None
    first = first_due(manifest)
    return None if first is None else first + 1

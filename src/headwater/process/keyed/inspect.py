"""How much state each bucket of a pipeline holds, and when something is due there: written after every batch. The
sizes are for people, what is due is for `process.ticks`.

<pipeline>/state/<level>-<bucket>.json
[{"operator", "level", "bucket", "arrangement", "rows", "bytes", "chunks", "runs"[, "due"]}, ...]
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.process.keyed import expire
from headwater.process.keyed.expiry import first_due
from headwater.process.keyed.manifest import Manifest
from headwater.process.plan import Plan


def write(folder: Path, plan: Plan, level: int, bucket: int, manifests: Mapping[str, Manifest]) -> None:
    """Put in place of the last one as a whole. That there is no room for it must not stop a pipeline."""
    told = []
    for name, manifest in sorted(manifests.items()):
        number, _, arrangement = name.partition(" ")
        operator = f"{number} {type(plan.nodes[int(number)].operator).__name__}"
        place = {"operator": operator, "level": level, "bucket": bucket, "arrangement": arrangement}
        told.append({**place, **asdict(manifest.size), **_due(operator, arrangement, manifest)})
    path = folder / "state" / f"{level}-{bucket}.json"
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(told))
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def summary(folder: Path) -> list[dict[str, Any]]:
    """One dict for each operator, bucket and arrangement of the pipeline in that folder, after its last batch there.

    Keys: operator, level, bucket, arrangement, rows, bytes, chunks, runs; and `due`, a moment in µs, of the queue of an
    operator that waits for ticks. Rows that merging will yet combine count.
    """
    found: list[dict[str, Any]] = []
    for file in (folder / "state").glob("*.json"):
        found += json.loads(file.read_text())
    return sorted(found, key=lambda each: (each["level"], each["operator"], each["bucket"], each["arrangement"]))


def _due(operator: str, arrangement: str, manifest: Manifest) -> dict[str, int]:
    if not operator.endswith(f" {expire.Expire.__name__}") or arrangement != expire.DUE:
        return {}
    first = first_due(manifest)
    return {} if first is None else {"due": first + 1}

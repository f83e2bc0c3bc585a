"""How much state each bucket of a pipeline holds. Only for people: written after every batch, read by nothing else.

<pipeline>/state/<level>-<bucket>.json
{"level", "bucket", "operator", "arrangements": {name: {"rows", "bytes", "chunks", "runs"}}}
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

from headwater.process.keyed.manifest import Manifest
from headwater.process.keyed.operator import Operator


def write(folder: Path, level: int, bucket: int, operator: Operator, manifests: Mapping[str, Manifest]) -> None:
    """Put in place of the last one as a whole. That there is no room for it must not stop a pipeline."""
    told = {
        "level": level,
        "bucket": bucket,
        "operator": type(operator).__name__,
        "arrangements": {name: asdict(manifest.size) for name, manifest in sorted(manifests.items())},
    }
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
    """One dict for each level, bucket and arrangement of the pipeline in that folder, after its last batch there.

    Keys: level, bucket, operator, arrangement, rows, bytes, chunks, runs. Rows that merging will yet combine count.
    """
    found = []
    for file in (folder / "state").glob("*.json"):
        told = json.loads(file.read_text())
        arrangements = told.pop("arrangements")
        found += [{**told, "arrangement": name, **size} for name, size in arrangements.items()]
    return sorted(found, key=lambda each: (each["level"], each["bucket"], each["arrangement"]))

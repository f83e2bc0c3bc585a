"""`make bench NAME=nexmark`: the 23 Nexmark queries, ours on Spark and Flink's SQL, on the same events and cores.

Both read the same events from local files in the form that each reads best (ours: the log; Flink: Parquet), keep state
exactly once, and write nothing. Each side is alone on the machine while it is measured, and warm.
That answers are right is checked elsewhere: `tests/property/test_nexmark_views.py`, and `flink_check` for Flink.
Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from for_nexmark.flink import Flink, write_files
from for_nexmark.ours import Ours
from headwater.testing.nexmark.events import events
from headwater.testing.nexmark.queries import QUERIES

BLOCK = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--batch-rows", type=int, help="of ours, at most in one batch; by default as an app has it")
    parser.add_argument("--only", nargs="*", default=list(QUERIES), help="queries, such as q4 q5")
    parser.add_argument("--no-peer", action="store_true", help="ours alone")
    given = parser.parse_args()
    told: dict[str, dict[str, Any]] = {name: {} for name in given.only}
    with tempfile.TemporaryDirectory(prefix="nexmark-") as folder:
        ours = Ours(Path(folder) / "ours", given.only)
        write_files(Path(folder) / "flink", ours.appended(events(given.events, block=BLOCK)))
        for name in given.only:
            told[name]["ours"] = asdict(ours.measure(name, batch_rows=given.batch_rows))
            say(f"ours {name}: {given.events / told[name]['ours']['seconds']:,.0f} events/s")
        ours.close()
        if not given.no_peer:
            with Flink(Path(folder) / "flink") as flink:
                for name in given.only:
                    if QUERIES[name].flink_at_its_best is not None:
                        told[name]["flink"] = asdict(flink.measure(name, events=given.events))
                        say(f"flink {name}: {given.events / told[name]['flink']['seconds']:,.0f} events/s")
    for figures in told.values():
        figures["ratio"] = ratio(figures, "seconds", 0)
        figures["ratio_without_sources"] = ratio(figures, "seconds", 1)
    ratios = [each["ratio"] for each in told.values() if each["ratio"] is not None]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    ours_mean = geometric([given.events / each["ours"]["seconds"] for each in told.values()])
    peers = [given.events / each["flink"]["seconds"] for each in told.values() if "flink" in each]
    print(
        json.dumps(
            {
                "bench": "nexmark",
                "unit": "events/s, geometric mean",
                "ours": round(ours_mean),
                "peer": round(geometric(peers)) if peers else None,
                "peer_name": "Flink SQL",
                "ratio": round(mean, 2) if mean else None,
                "detail": told,
            }
        )
    )


def ratio(figures: dict[str, Any], name: str, without: int) -> float | None:
    """How many times faster than the peer; `without` the time of either one's source."""
    if "flink" not in figures:
        return None
    spent = [max(figures[side][name] - without * figures[side]["source_seconds"], 0.001) for side in ("ours", "flink")]
    took = [each / figures[side]["events"] for each, side in zip(spent, ("ours", "flink"), strict=True)]
    return round(took[1] / took[0], 2)


def geometric(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()

"""`make bench NAME=pipeline`: topics through Spark, against what Spark does by itself, on the same records.

1. Topic to nowhere: ours into Spark's `noop` sink, against Spark's own Kafka connector with `from_json` on a local
   broker. One batch over all records, from the start of the query to its end.
2. State by key, count and latest value of a million keys, one record of each key a load: our keyed lane, into a durable
   topic, against `transformWithStateInPandas` per key (far fewer keys: rates are compared) and against a native
   aggregation with RocksDB; both read Parquet files and write to nowhere.
3. Latency from append to derived topic, at 1,000 and 10,000 records a second: appending, the app and a follower of the
   derived topic are three processes.
4. Memory of a running app, its own and apart from it pages of mapped files, at 1,000 records a second, over
   `--memory-minutes` (20 for the figure that counts).

Each side is a process of its own, one after the other, warm before it is measured. Prints one JSON object last.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from for_pipeline import live, ours, peers
from for_pipeline.children import alone, say
from for_pipeline.memory import memory_over
from for_pipeline.records import Sizes

PARTS = ("throughput", "state", "latency", "memory")
RATES = (1_000, 10_000)


def throughput(folder: Path, sizes: Sizes, source: str) -> dict[str, Any]:
    mine = alone(ours.topic_to_nowhere, made(folder / "ours"), sizes, source)
    say(f"topic to nowhere, {source}: {mine}")
    kafka = alone(peers.kafka_to_nowhere, made(folder / "kafka"), sizes)
    say(f"topic to nowhere, Spark's Kafka connector: {kafka}")
    return {"ours": mine, "kafka": kafka, "ratio": ratio(mine, kafka), "rows": sizes.rows}


def state(folder: Path, sizes: Sizes) -> dict[str, Any]:
    mine = alone(ours.state_by_key, made(folder / "ours"), sizes)
    say(f"state by key, keyed lane: {mine}")
    theirs = alone(peers.state_by_key, made(folder / "peers"), sizes)
    return {
        "ours": mine,
        **theirs,
        "ratio_per_key": ratio(mine, theirs["per_key"]),
        "ratio_native": ratio(mine, theirs["native"]),
        "ratio_native_new_keys": ratio(mine, theirs["native"], "new_keys_rows_per_s"),
    }


def latency(folder: Path, sizes: Sizes) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for lane in live.LANES:
        for rate in RATES:
            name = f"{lane} lane, {rate} records/s"
            result[name] = live.latency(made(folder / f"{lane}-{rate}"), lane, rate, sizes.seconds)
            say(f"latency, {name}: {result[name]}")
    return result


def memory(folder: Path, sizes: Sizes) -> dict[str, Any]:
    result = memory_over(made(folder / "app"), sizes.memory_minutes)
    say(f"memory: {result}")
    return result


def ratio(mine: dict[str, Any], theirs: dict[str, Any], figure: str = "rows_per_s") -> float:
    return round(mine[figure] / theirs[figure], 2)


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=6_000_000, help="of the topic that goes to nowhere")
    options.add_argument("--rounds", type=int, default=3, help="how often each is measured; the median counts")
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--few-keys", type=int, default=20_000, help="for the peer that keeps state per key")
    options.add_argument("--seconds", type=float, default=45, help="how long latency is measured")
    options.add_argument("--memory-minutes", type=float, default=3)
    options.add_argument("--source", default=ours.ROWS, help="the Spark source that reads our topics")
    options.add_argument("--only", choices=PARTS, action="append", help="one part; may be said several times")
    given = options.parse_args()
    sizes = Sizes(given.rows, given.rounds, given.keys, given.few_keys, given.seconds, given.memory_minutes)
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "throughput": lambda folder: throughput(folder, sizes, given.source),
        "state": lambda folder: state(folder, sizes),
        "latency": lambda folder: latency(folder, sizes),
        "memory": lambda folder: memory(folder, sizes),
    }
    detail: dict[str, Any] = {"cores": os.cpu_count()}
    with tempfile.TemporaryDirectory(prefix="pipeline-") as folder:
        for name in given.only or PARTS:
            detail[name] = parts[name](made(Path(folder).absolute() / name))
    first = detail.get("throughput", {})
    print(
        json.dumps(
            {
                "bench": "pipeline",
                "unit": "rows/s",
                "ours": first.get("ours", {}).get("rows_per_s"),
                "peer": first.get("kafka", {}).get("rows_per_s"),
                "peer_name": f"Kafka connector and from_json, {first.get('kafka', {}).get('version')}",
                "ratio": first.get("ratio"),
                "detail": detail,
            }
        )
    )


if __name__ == "__main__":
    main()

"""What a topic is, and what may be changed of it later."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from headwater.errors import BadName, BadSchema
from headwater.records import DELETED, WEIGHT, is_key_type

Kind = Literal["stream", "table"]
WhenFull = Literal["drop_oldest", "drop_newest", "block"]
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,199}")
INTERNAL = "_headwater."
"""How the names of Headwater's own topics begin; they are listed only where asked for."""


@dataclass(frozen=True)
class Settings:
    """What `alter` may change.

    Retention is kept by upkeep, of whole chunks: `retain_s` is the age after which a record may go, `retain_bytes` the
    size of a partition above which its oldest go. A bound is kept by every append: at most `most_rows` are there.
    `tombstone_s` is how long compaction keeps the tombstone of a deleted row, `history_s` how long it leaves a table's
    changes as they were appended: so long can a follower be away, and so far back the past be asked for. `keys_s` is
    how long an append with an idempotency key is known by it: sent again later than that, it is another one.
    """

    retain_s: float | None = None
    retain_bytes: int | None = None
    most_rows: int | None = None
    when_full: WhenFull = "drop_oldest"
    tombstone_s: float = 86_400.0
    history_s: float = 0.0
    keys_s: float = 86_400.0

    def __post_init__(self) -> None:
        for name in ("retain_s", "retain_bytes", "most_rows"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise BadSchema(what=f"{name} is {value}", do="Give a number above zero, or None for no limit")
        if self.keys_s <= 0:
            raise BadSchema(what=f"keys_s is {self.keys_s}", do="Give seconds above zero; 86400 is a day")
        if self.when_full not in ("drop_oldest", "drop_newest", "block"):
            raise BadSchema(what=f"when_full is {self.when_full!r}", do="Use drop_oldest, drop_newest or block")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class TopicSpec:
    """A topic: `schema` has the user's columns. All but schema (it evolves) and settings is fixed when it is made.

    A table is weighted or, with `upsert`, holds for each key its newest row and tombstones. With `versioned`, every key
    has a version that counts its appends, and an append may say which it expects.
    """

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    time: str | None = None
    kind: Kind = "stream"
    partitions: int = 4
    upsert: bool = False
    versioned: bool = False
    settings: Settings = Settings()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise BadName(name=self.name)
        for wrong, what, do in self._objections():
            if wrong:
                raise BadSchema(what=f"topic {self.name!r} {what}", do=do)

    def _objections(self) -> list[tuple[bool, str, str]]:
        names = self.schema.names
        missing = [column for column in (*self.key, *([self.time] if self.time else [])) if column not in names]
        odd_keys = [
            column for column in self.key if column in names and not is_key_type(self.schema.field(column).type)
        ]
        timed = self.time in names and not pa.types.is_timestamp(self.schema.field(self.time).type)
        return [
            (self.kind not in ("stream", "table"), f"has the kind {self.kind!r}", "Use 'stream' or 'table'"),
            (not 1 <= self.partitions <= 1024, f"has {self.partitions} partitions", "Use 1 to 1024"),
            (self.upsert and not self.key, "is an upsert table without a key", "Say key='...': a row has a key"),
            (bool(missing), f"has no column {missing[:1]} for its key or time", f"Its columns: {', '.join(names)}"),
            (bool(odd_keys), f"has a key of nested type: {odd_keys}", "Use columns of plain types as the key"),
            (timed, f"has a time column {self.time!r} that is not a timestamp", "Give it the type 'timestamp'"),
            (self.upsert and self.kind != "table", "is an upsert stream", "Say kind='table': only a table has rows"),
            (
                self.kind == "table" and (self.settings.retain_s or self.settings.retain_bytes) is not None,
                "is a table with retention",
                "Tables are compacted, which keeps their rows; only streams are retained for a time",
            ),
            (self.versioned and not self.key, "is versioned without a key", "Say key='...': versions are of keys"),
        ]

    @property
    def weighted(self) -> bool:
        return self.kind == "table" and not self.upsert

    @property
    def stored(self) -> pa.Schema:
        """The schema of the chunks: the user's columns and, in a table, the weight or the tombstone's mark."""
        if self.weighted:
            return self.schema.append(pa.field(WEIGHT, pa.int64()))
        return self.schema.append(pa.field(DELETED, pa.bool_())) if self.upsert else self.schema

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that may not be null; a tombstone has no time."""
        if self.upsert:
            return (*self.key, DELETED)
        own = (*self.key, *([self.time] if self.time else []))
        return (*own, WEIGHT) if self.weighted else own

    def fixed_difference(self, other: TopicSpec) -> str | None:
        """What of the fixed parts another declaration has otherwise, in words."""
        for part in ("key", "time", "kind", "partitions", "upsert", "versioned"):
            mine, theirs = getattr(self, part), getattr(other, part)
            if mine != theirs:
                return f"{part}: it has {mine!r}, declared is {theirs!r}"
        return None

    def with_schema(self, schema: pa.Schema) -> TopicSpec:
        return replace(self, schema=schema)


def describe(spec: TopicSpec) -> dict[str, Any]:
    return {
        "topic": spec.name,
        "kind": spec.kind,
        "changes": "upserts" if spec.upsert else "weights" if spec.weighted else "facts",
        "key": list(spec.key),
        "time": spec.time,
        "partitions": spec.partitions,
        "versioned": spec.versioned,
        "columns": {field.name: str(field.type) for field in spec.schema},
        **{name: value for name, value in asdict(spec.settings).items() if value is not None},
    }

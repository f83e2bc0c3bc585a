"""Inner join on equality: dA x B_new + A_old x dB. Rows of keys that did not change are never touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.log.keyhash import distinct, key_hash
from headwater.process import duck
from headwater.process.keyed.arrangement import Shape
from headwater.process.keyed.operator import Answer, State
from headwater.records import WEIGHT

LEFT, RIGHT = 0, 1


@dataclass(frozen=True)
class Join:
    """`output` is a SELECT list over `l` and `r`, `where` what else must hold; weights multiply."""

    left: pa.Schema
    right: pa.Schema
    left_key: tuple[str, ...]
    right_key: tuple[str, ...]
    output: str
    where: str | None

    revision = 2

    def step(self, state: State, changes: Mapping[int, pa.Table], watermark: int | None) -> Answer:
        lefts = state.arrangement("left", Shape(self.left, self.left_key, (WEIGHT,), compact=False))
        rights = state.arrangement("right", Shape(self.right, self.right_key, (WEIGHT,), compact=False))
        left = changes.get(LEFT, self.left.empty_table())
        right = changes.get(RIGHT, self.right.empty_table())
        left_hashes = key_hash([left.column(name) for name in self.left_key])
        right_hashes = key_hash([right.column(name) for name in self.right_key])

        left_before = lefts.gather(distinct(right_hashes))
        rights.add(right, right_hashes)
        right_now = rights.gather(distinct(left_hashes))
        lefts.add(left, left_hashes)

        answer = duck.run(
            f"SELECT * REPLACE (sum({WEIGHT})::BIGINT AS {WEIGHT}) FROM ("
            f"{self._product('left_changes', 'right_now')} UNION ALL {self._product('left_before', 'right_changes')}"
            f") GROUP BY ALL HAVING sum({WEIGHT}) <> 0",
            left_changes=left,
            right_now=right_now,
            left_before=left_before,
            right_changes=right,
        )
        return Answer(answer)

    def _product(self, left: str, right: str) -> str:
        pairs = zip(self.left_key, self.right_key, strict=True)
        on = " AND ".join(f"l.{duck.quoted(a)} = r.{duck.quoted(b)}" for a, b in pairs)
        where = f" WHERE {self.where}" if self.where else ""
        weight = f"l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}"
        return f"SELECT {self.output}, {weight} FROM {left} AS l JOIN {right} AS r ON {on}{where}"

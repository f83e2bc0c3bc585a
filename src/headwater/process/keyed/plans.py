"""Plans that are not written in SQL: the newest record of each key, a fold over each key's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pyarrow as pa

from headwater.log.spec import TopicSpec
from headwater.process import duck
from headwater.process.keyed.fold import Fold
from headwater.process.keyed.latest import Latest
from headwater.process.keyed.operator import Operator
from headwater.process.plan import CHANGES, Node, Plan, Read, Send
from headwater.records import OFFSET, PARTITION

_METADATA = [pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())]


def latest_plan(
    name: str, topic: TopicSpec, key: tuple[str, ...], *, by: Literal["log", "time"], retain: int | None
) -> Plan:
    operator = Latest(_arriving(topic), key, time=topic.time, by=by, retain=retain)
    return _plan(name, topic, key, operator, topic.schema)


def fold_plan(
    name: str,
    topic: TopicSpec,
    key: tuple[str, ...],
    *,
    columns: pa.Schema,
    initial: Mapping[str, Any],
    function: Callable[..., Any],
    by: Literal["record", "arrow"],
    on_error: Literal["stop", "dead"],
    retain: int | None,
) -> Plan:
    operator = Fold(
        input=_arriving(topic),
        key=key,
        columns=columns,
        initial=initial,
        function=function,
        by=by,
        on_error=on_error,
        time=topic.time,
        retain=retain,
        pipeline=name,
        topic=topic.name,
    )
    schema = pa.schema([*(topic.schema.field(column) for column in key), *columns])
    return _plan(name, topic, key, operator, schema)


def _arriving(topic: TopicSpec) -> pa.Schema:
    return pa.schema([*topic.stored, *_METADATA])


def _plan(name: str, topic: TopicSpec, key: tuple[str, ...], operator: Operator, schema: pa.Schema) -> Plan:
    stored = tuple(topic.stored.names)
    sql = f"SELECT {duck.columns([*stored, PARTITION, OFFSET])} FROM {CHANGES}"
    read = Read(topic.name, stored, (Send(sql, key, node=0),), metadata=True)
    return Plan(name, "", (read,), (Node(operator, 0, (Send(None, key),)),), schema, key)

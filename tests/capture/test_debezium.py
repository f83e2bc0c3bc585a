"""The real Debezium engine and our own capture, on the same tables: both streams replay to exactly these tables."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import headwater as hw
from headwater.capture.envelopes.capture import EnvelopeCapture
from headwater.capture.runner import Capturing
from headwater.capture.spec import CaptureSettings, CaptureSpec
from headwater.log import TopicSpec
from headwater.records import schema_of
from headwater.testing.debezium import MAKE_ROLE, DebeziumTelling, debezium_jars, settings_of
from headwater.testing.maven import JarsMissing
from tests.capture.conftest import Database
from tests.capture.load import TABLES, Load
from tests.capture.replay import assert_same, replayed

STEPS = 150
LARGE = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 300))"
LAST = '"snapshot":"last"'
TYPES = """CREATE TABLE kinds (id int PRIMARY KEY, n numeric(20,4), free numeric, at timestamp(3), exact timestamp,
  zoned timestamptz, day date, flag bool, raw bytea, doc jsonb, texts text[], small real, note text)"""
ROW = (
    "INSERT INTO kinds SELECT g, g * 1.25, g + 0.125, now()::timestamp, now()::timestamp, now(), current_date + g,"
    " g %% 2 = 0, decode('00ff', 'hex'), '{\"a\": 1}', ARRAY['x', NULL, 'y' || g], 1.1 * g, NULL"
    " FROM generate_series(%s::int, %s::int) g"
)


def as_records(messages: list[tuple[str | None, str | None]]) -> list[dict[str, str | None]]:
    return [{"key": key, "value": value} for key, value in messages]


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("schemas", ["false", "true"])
def test_both_streams_replay_to_the_same_tables(
    database: Database,
    tmp_path: Path,
    until: Callable[..., None],
    must_have: Callable[[bool, str], None],
    schemas: str,
) -> None:
    try:
        found = debezium_jars()
    except JarsMissing as missing:
        must_have(False, str(missing))
    with psycopg.connect(database.server.url(), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'debezium'").fetchone():
            connection.execute(MAKE_ROLE.encode())
    database.run(*TABLES, TYPES)
    database.connection.execute(ROW.encode(), (1, 50))
    settings = settings_of(
        database.server,
        f"{database.name}_debezium",
        "public.accounts,public.branches,public.kinds",
        database_dbname=database.name,
        publication_name=f"{database.name}_debezium",
        publication_autocreate_mode="filtered",
        snapshot_mode="initial",
        skipped_operations="none",
        key_converter_schemas_enable=schemas,
        value_converter_schemas_enable=schemas,
        converter_schemas_enable=schemas,
        time_precision_mode="adaptive" if schemas == "true" else "microseconds",
    )
    with DebeziumTelling(found, settings, tmp_path) as engine:
        ours = database.capture(["accounts", "branches", "kinds"])
        load = Load(database.url, seed=7)
        chosen = random.Random(7)
        for step in range(STEPS):
            load.step()
            if step % 10 == 0:
                database.connection.execute(ROW.encode(), (100 + step, 104 + step))
                key = chosen.randint(1, 50)
                database.run(
                    f"UPDATE kinds SET note = {LARGE} WHERE id IN ({key}, {key + 1})",
                    f"UPDATE kinds SET n = -n WHERE id = {key}",  # its note is not sent again
                    f"UPDATE kinds SET id = 1000 + {step} WHERE id = {key + 1}",
                    f"DELETE FROM kinds WHERE id = {chosen.randint(1, 50)}",
                    *(["TRUNCATE kinds"] if step == STEPS - 30 else []),
                )
            if step == STEPS // 2:
                until(lambda: any(LAST in (value or "") for _, value in engine.messages) or engine.ended, within_s=90)
        load.close()
        database.run("INSERT INTO accounts VALUES (-1, 0, 'the end')")
        until(lambda: any("the end" in (value or "") for _, value in engine.messages) or engine.ended, within_s=90)
        assert engine.ended is None, engine.ended
        messages = list(engine.messages)
    database.caught_up(ours)
    assert_same(database.log, database.url, "accounts", "branches")
    ops = {json.loads(value).get("payload", json.loads(value))["op"] for _, value in messages if value}
    assert ops == {"r", "c", "u", "d", "t"}
    assert any("__debezium_unavailable_value" in (value or "") for _, value in messages)

    log = database.log
    columns = schema_of({"key": "string", "value": "string"})
    raw = hw.Topic(log, log.create(TopicSpec("raw", columns, partitions=1)))
    names = {f"public.{table}": f"theirs.{table}" for table in ("accounts", "branches", "kinds")}
    for table, topic in names.items():
        known = log.topic(table.removeprefix("public."))
        log.create(TopicSpec(topic, known.schema, key=known.key, kind="table"))
    streamed = next(place for place, (_, value) in enumerate(messages) if LAST in (value or "")) + 1
    most = len(messages) - 50
    raw.append(as_records(messages[:most]))
    raw.append(as_records(messages[streamed:]))  # most of the stream is delivered again
    spec = CaptureSpec("theirs", "debezium:raw", names, CaptureSettings(times="us" if schemas == "false" else None))
    theirs = Capturing(EnvelopeCapture(spec, log), lambda text: None)
    database.running.append(theirs)
    theirs.start()
    database.caught_up(theirs)
    for table, topic in names.items():
        assert replayed(log, topic) == replayed(log, table.removeprefix("public."))
    assert 0 < theirs.capture.status().seen < most - streamed

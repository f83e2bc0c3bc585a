"""Every type of PostgreSQL: what a snapshot reads and what the stream tells are the same, and are what was put in."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

import headwater as hw
from tests.capture.conftest import Database
from tests.capture.replay import canonical

pytestmark = pytest.mark.postgres

LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)

# the column's type, what is put in as SQL, what is captured as Python sees it
CASES: list[tuple[str, str, Any]] = [
    ("smallint", "-32768", -32768),
    ("integer", "2147483647", 2147483647),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("oid", "4294967295", 4294967295),
    ("real", "1.5", 1.5),
    ("double precision", "0.1", 0.1),
    ("double precision", "'-Infinity'", float("-inf")),
    ("double precision", "'NaN'", "NaN"),
    ("numeric(12,3)", "-123456789.125", Decimal("-123456789.125")),
    ("numeric(38,0)", "12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
    ("numeric(5,2)", "'NaN'", None),
    ("numeric", "1234567890.0987654321", "1234567890.0987654321"),
    ("numeric", "'NaN'", "NaN"),
    ("numeric(60,10)", "1.5", "1.5000000000"),
    ("numeric(5,-2)", "12345", "12300"),
    ("money", "12.34", "$12.34"),
    ("boolean", "true", True),
    ("boolean", "false", False),
    ("text", "E'tab\\t new\\n line\\r back\\\\slash \\\\N \\b\\f\\x0b \"quote\" it''s'", "tab\t new\n line\r back\\slash \\N \b\f\v \"quote\" it's"),
    ("text", "''", ""),
    ("text", "'ünïcödé 🐘'", "ünïcödé 🐘"),
    ("text", "NULL", None),
    ("text", "E'\\\\N'", "\\N"),
    ("varchar(10)", "'short'", "short"),
    ("char(5)", "'ab'", "ab   "),
    ("name", "'a name'", "a name"),
    ("bytea", "'\\x00ff10'", b"\x00\xff\x10"),
    ("bytea", "''", b""),
    ("date", "'2024-02-29'", date(2024, 2, 29)),
    ("date", "'1969-12-31'", date(1969, 12, 31)),
    ("date", "'infinity'", date(9999, 12, 31)),
    ("date", "'-infinity'", date(1, 1, 1)),
    ("timestamp", "'2024-02-29 12:34:56.789012'", datetime(2024, 2, 29, 12, 34, 56, 789012, UTC)),
    ("timestamptz", "'2024-02-29 12:34:56.5+05:30'", datetime(2024, 2, 29, 7, 4, 56, 500000, UTC)),
    ("timestamptz", "'1969-12-31 23:59:59.999999+00'", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    ("timestamptz", "'infinity'", LAST),
    ("timestamptz", "'-infinity'", FIRST),
    ("timestamp", "'0044-03-15 BC'", FIRST),
    ("timestamp", "'12024-01-01'", LAST),
    ("time", "'12:34:56.7'", "12:34:56.7"),
    ("timetz", "'12:34:56+02'", "12:34:56+02"),
    ("interval", "'1 year 2 days 03:04:05.6'", "1 year 2 days 03:04:05.6"),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("json", "'{\"a\": [1,  2]}'", '{"a": [1,  2]}'),
    ("jsonb", "'{\"b\": 1, \"a\": [1,  2]}'", '{"a": [1, 2], "b": 1}'),
    ("inet", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("macaddr", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    ("bit(4)", "B'1010'", "1010"),
    ("tsvector", "'a fat cat'", "'a' 'cat' 'fat'"),
    ("point", "'(1,2)'", "(1,2)"),
    ("int4range", "'[1,5)'", "[1,5)"),
    ("tstzrange", "'[2024-01-01 00:00+00,)'", '["2024-01-01 00:00:00+00",)'),
    ("mood", "'so so'", "so so"),
    ("positive", "7", 7),
    ("pair", "ROW(1, 'a b')", '(1,"a b")'),
    ("int[]", "'{1,NULL,-3}'", [1, None, -3]),
    ("int[]", "'{}'", []),
    ("int[]", "NULL", None),
    ("bigint[]", "'[0:1]={7,8}'", [7, 8]),
    ("text[]", "ARRAY['a,b', 'q\"uote', 'back\\slash', NULL, 'NULL', '', '{x}']", ["a,b", 'q"uote', "back\\slash", None, "NULL", "", "{x}"]),
    ("float8[]", "'{1.5,NaN}'", [1.5, "NaN"]),
    ("boolean[]", "'{t,f}'", [True, False]),
    ("numeric(6,2)[]", "'{1.50,2}'", [Decimal("1.50"), Decimal("2.00")]),
    ("timestamptz[]", "ARRAY['2024-01-01 00:00:00+00'::timestamptz]", [datetime(2024, 1, 1, tzinfo=UTC)]),
    ("bytea[]", "ARRAY['\\x00'::bytea, '\\xff']", [b"\x00", b"\xff"]),
    ("uuid[]", "ARRAY['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid]", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("int[][]", "'{{1,2},{3,4}}'", [1, 2, 3, 4]),
    ("mood[]", "'{sad,\"so so\"}'", '{sad,"so so"}'),
]  # fmt: skip


def test_snapshot_and_stream_give_every_value_as_it_is(database: Database) -> None:
    columns = ", ".join(f"c{place} {kind}" for place, (kind, _, _) in enumerate(CASES))
    values = ", ".join(f"({value})::{kind}" for kind, value, _ in CASES)
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'so so')",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        "CREATE TYPE pair AS (a int, b text)",
        f"CREATE TABLE many (id int PRIMARY KEY, {columns}, doubled int GENERATED ALWAYS AS (id * 2) STORED)",
        "ALTER TABLE many REPLICA IDENTITY FULL",
        f"INSERT INTO many VALUES (1, {values})",
    )
    capturing = database.capture(["many"])
    database.caught_up(capturing)
    database.run(f"INSERT INTO many VALUES (2, {values})", "UPDATE many SET id = 3 WHERE id = 1")
    database.caught_up(capturing)
    records = hw.Topic(database.log, database.log.topic("many")).read()
    rows = canonical(records.select([f"c{place}" for place in range(len(CASES))]))
    assert len(rows) == 4
    for row in rows:
        for (kind, given, expected), found in zip(CASES, row, strict=True):
            assert found == expected, (kind, given)
    assert "doubled" not in records.schema.names
    assert sorted(records["id"].to_pylist()) == [1, 1, 2, 3]


def test_keys_of_many_types_find_their_rows_again(database: Database) -> None:
    database.run(
        "CREATE TABLE keyed (n numeric(10,2), u uuid, t text, d date, PRIMARY KEY (t, n, u, d), v int)",
        "INSERT INTO keyed VALUES (1.5, gen_random_uuid(), 'a', '2024-01-01', 1)",
    )
    capturing = database.capture(["keyed"])
    database.caught_up(capturing)
    database.run("UPDATE keyed SET v = 2", "UPDATE keyed SET n = 2.5", "UPDATE keyed SET t = 'b'")
    database.caught_up(capturing)
    spec = database.log.topic("keyed")
    assert spec.key == ("t", "n", "u", "d")
    rows = hw.Topic(database.log, spec).read().to_pylist()
    assert [(row["t"], row["n"], row["v"], row["_deleted"]) for row in rows if row["t"] == "b"] == [
        ("b", "2.50", 2, False)
    ]
    assert {(row["t"], row["n"]) for row in rows if row["_deleted"]} == {("a", "1.50"), ("a", "2.50")}

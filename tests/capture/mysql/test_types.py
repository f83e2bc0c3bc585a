"""Every type of MariaDB: what a snapshot reads and what the stream tells are the same, and are what was put in."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

import headwater as hw
from tests.capture.mysql.conftest import Database
from tests.capture.mysql.replay import assert_same
from tests.capture.replay import canonical

pytestmark = pytest.mark.slow

NUL = b"\0"

# the column's type, what is put in as SQL, what is captured as Python sees it
CASES: list[tuple[str, str, Any]] = [
    ("tinyint", "-128", -128),
    ("tinyint unsigned", "255", 255),
    ("boolean", "true", 1),
    ("smallint", "-32768", -32768),
    ("smallint unsigned", "65535", 65535),
    ("mediumint", "-8388608", -8388608),
    ("mediumint unsigned", "16777215", 16777215),
    ("int", "-2147483648", -2147483648),
    ("int unsigned zerofill", "4294967295", 4294967295),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("bigint unsigned", "18446744073709551615", 18446744073709551615),
    ("float", "1.1", 1.100000023841858),
    ("float", "3.4e38", 3.3999999521443642e38),
    ("double", "0.1", 0.1),
    ("double", "-2.2250738585072014e-308", -2.2250738585072014e-308),
    ("decimal(12,3)", "-123456789.125", Decimal("-123456789.125")),
    ("decimal(12,3)", "0.001", Decimal("0.001")),
    ("decimal(38,0)", "12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
    ("decimal(38,30)", "-12345678.123456789012345678901234567890", Decimal("-12345678.123456789012345678901234567890")),
    ("decimal(10,0)", "0", Decimal("0")),
    ("decimal(65,20)", "-1234567890123456789012345678901234567890.00000000000000000001", "-1234567890123456789012345678901234567890.00000000000000000001"),
    ("char(5)", "'ab'", "ab"),
    ("varchar(300)", "'tab\\t line\\n ünïcödé 🐘'", "tab\t line\n ünïcödé 🐘"),
    ("varchar(10)", "''", ""),
    ("varchar(10)", "NULL", None),
    ("varchar(20) CHARACTER SET latin1", "'ñandú €'", "ñandú €"),
    ("varchar(20) CHARACTER SET ucs2", "'żółw'", "żółw"),
    ("text CHARACTER SET utf32", "'żółw 🐢'", "żółw 🐢"),
    ("varchar(20) CHARACTER SET koi8r", "'привет'", "привет"),
    ("tinytext", "'tiny'", "tiny"),
    ("mediumtext", "repeat('m', 70000)", "m" * 70000),
    ("longtext", "'long'", "long"),
    ("json", "'{\"a\": [1,  2]}'", '{"a": [1,  2]}'),
    ("binary(4)", "x'0102'", b"\x01\x02\0\0"),
    ("varbinary(300)", "x'00ff00'", b"\0\xff\0"),
    ("blob", "x'00ff10'", b"\0\xff\x10"),
    ("blob", "''", b""),
    ("longblob", "repeat(x'00', 300)", NUL * 300),
    ("date", "'2024-02-29'", date(2024, 2, 29)),
    ("date", "'1000-01-01'", date(1000, 1, 1)),
    ("date", "'9999-12-31'", date(9999, 12, 31)),
    ("date", "'0000-00-00'", None),
    ("date", "'2024-02-00'", None),
    ("datetime", "'2024-02-29 12:34:56'", datetime(2024, 2, 29, 12, 34, 56, 0, UTC)),
    ("datetime(1)", "'2024-02-29 12:34:56.7'", datetime(2024, 2, 29, 12, 34, 56, 700000, UTC)),
    ("datetime(3)", "'1969-12-31 23:59:59.999'", datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
    ("datetime(6)", "'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ("datetime", "'0000-00-00'", None),
    ("timestamp NULL", "'2024-02-29 12:34:56'", datetime(2024, 2, 29, 12, 34, 56, 0, UTC)),
    ("timestamp(6) NULL", "'2024-02-29 12:34:56.000001'", datetime(2024, 2, 29, 12, 34, 56, 1, UTC)),
    ("timestamp NULL", "0", None),
    ("time", "'12:34:56'", "12:34:56"),
    ("time", "'-838:59:59'", "-838:59:59"),
    ("time(2)", "'-00:00:01.25'", "-00:00:01.25"),
    ("time(6)", "'100:00:00.000001'", "100:00:00.000001"),
    ("year", "2024", 2024),
    ("year", "0", 0),
    ("bit(1)", "b'1'", True),
    ("bit(1)", "b'0'", False),
    ("bit(12)", "b'101010101010'", b"\x0a\xaa"),
    ("enum('small','it''s','größe')", "'größe'", "größe"),
    ("enum('small','it''s')", "'it''s'", "it's"),
    ("enum('a')", "'none of them'", ""),
    ("enum('ä','b') CHARACTER SET latin1", "'ä'", "ä"),
    ("set('a','b','c','d','e','f','g','h','i')", "'a,i,c'", "a,c,i"),
    ("set('a','b')", "''", ""),
    ("uuid", "'123e4567-e89b-12d3-a456-426655440000'", "123e4567-e89b-12d3-a456-426655440000"),
    ("uuid", "'f81d4fae-7dec-41d0-a765-00a0c91e6bf6'", "f81d4fae-7dec-41d0-a765-00a0c91e6bf6"),
    ("uuid", "'01890a5d-ac96-774b-bcce-b302099a8057'", "01890a5d-ac96-774b-bcce-b302099a8057"),
    ("inet6", "'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329"),
    ("inet6", "'::ffff:192.0.2.1'", "::ffff:192.0.2.1"),
    ("inet4", "'10.0.0.1'", "10.0.0.1"),
    ("point", "POINT(1, 2)", b"\0\0\0\0\x01\x01\0\0\0\0\0\0\0\0\0\xf0?\0\0\0\0\0\0\0@"),
]  # fmt: skip


def test_snapshot_and_stream_give_every_value_as_it_is(database: Database) -> None:
    columns = ", ".join(f"c{place} {kind}" for place, (kind, _, _) in enumerate(CASES))
    names = ", ".join(f"c{place}" for place in range(len(CASES)))
    values = ", ".join(value for _, value, _ in CASES)
    database.run(
        f"CREATE TABLE many (id int PRIMARY KEY, {columns}, doubled int GENERATED ALWAYS AS (id * 2) STORED)",
        f"INSERT INTO many (id, {names}) VALUES (1, {values})",
    )
    capturing = database.capture(["many"])
    database.caught_up(capturing)
    database.run(f"INSERT INTO many (id, {names}) VALUES (2, {values})", "UPDATE many SET id = 3 WHERE id = 1")
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
        "CREATE TABLE keyed (n decimal(10,2), u uuid, t varchar(20), d date, b binary(4), PRIMARY KEY (t, n, u, d, b), v int)",
        "INSERT INTO keyed VALUES (1.5, uuid(), 'a', '2024-01-01', x'01', 1), (-0.25, uuid(), 'c', '2024-01-01', x'', 1)",
    )
    capturing = database.capture(["keyed"])
    database.caught_up(capturing)
    database.run("UPDATE keyed SET v = 2", "UPDATE keyed SET n = 2.5 WHERE t = 'a'", "UPDATE keyed SET t = upper(t)")
    database.caught_up(capturing)
    spec = database.log.topic("keyed")
    assert spec.key == ("t", "n", "u", "d", "b")
    rows = hw.Topic(database.log, spec).read().to_pylist()
    summed: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = (row["t"], row["n"], row["b"], row["v"])
        summed[key] = summed.get(key, 0) + row["_weight"]
    assert {key for key, weight in summed.items() if weight} == {
        ("A", "2.50", b"\1\0\0\0", 2),
        ("C", "-0.25", NUL * 4, 2),
    }


def test_rows_of_many_columns_and_nulls(database: Database) -> None:
    """More columns than a byte of the bitmap of nulls has bits, in every pattern of nulls."""
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(["int", "varchar(9)", "double"] * 7))
    database.run(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})")
    capturing = database.capture(["wide"])
    database.caught_up(capturing)
    names = ", ".join(f"c{place}" for place in range(21))
    chosen = ", ".join(f"IF(seq & {1 << place % 20}, seq % 7, NULL)" for place in range(21))
    database.run(f"INSERT INTO wide (id, {names}) SELECT seq * 4099, {chosen} FROM seq_1_to_256")
    database.run("UPDATE wide SET c3 = NULL, c4 = 'x' WHERE id % 3 = 0")
    database.caught_up(capturing)
    assert_same(database.log, database.url, "wide")

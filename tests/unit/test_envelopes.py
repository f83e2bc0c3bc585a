"""Messages of others: what each kind of value and each kind of message becomes, and what is said of bad ones."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.capture.state import State
from headwater.cli.main import cli
from headwater.errors import BadCapture, BadMessage, UsageError

SOURCE = {"connector": "postgresql", "name": "s", "db": "shop", "schema": "public", "table": "people"}
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


class Shop:
    """An app with a topic of messages; `read` is what becomes of these."""

    def __init__(self, folder: Path) -> None:
        self.app = hw.App("shop", log=f"file:{folder / 'log'}")
        self.raw = self.app.topic("raw", {"key": "string", "value": "string"}, partitions=1)

    def declare(self, columns: dict[str, str], kind: str = "debezium", **settings: Any) -> hw.Topic:
        people = self.app.topic("people", columns, key="id", kind="table")
        self.app.capture(f"{kind}:raw", tables={"people": people}, settings=hw.CaptureSettings(**settings))
        return people

    def send(self, *messages: tuple[Any, Any]) -> None:
        texts = [{"key": _text(key), "value": _text(value)} for key, value in messages]
        self.raw.append(texts)
        self.app.run(until="caught-up")

    def rows(self) -> list[dict[str, Any]]:
        names = self.app.log.topic("people").schema.names
        rows: list[dict[str, Any]] = []
        for record in self.app.topics["people"].read().to_pylist():
            row = {name: record[name] for name in names}
            if record["_weight"] > 0:
                rows.append(row)
            else:
                rows.remove(row)
        return sorted(rows, key=lambda row: str(row["id"]))


def _text(told: Any) -> str | None:
    return told if told is None or isinstance(told, str) else json.dumps(told)


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    made = Shop(tmp_path)
    yield made
    made.app.close()


def told(op: str, after: Any, *, before: Any = None, lsn: int | None = None, **source: Any) -> tuple[Any, Any]:
    row = after or before
    place = {"sequence": json.dumps([str(lsn), str(lsn)]), "ts_ms": lsn} if lsn is not None else {}
    value = {"before": before, "after": after, "op": op, "source": {**SOURCE, **place, **source}}
    return {"id": row["id"]}, value


def with_schema(fields: list[dict[str, Any]], after: dict[str, Any]) -> tuple[Any, Any]:
    key, value = told("c", after)
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields}]}
    return key, {"schema": schema, "payload": value}


@pytest.mark.parametrize(
    ("kind", "schema", "value", "expected"),
    [
        ("timestamp", {"type": "int64", "name": "io.debezium.time.Timestamp"}, 1500, "1970-01-01T00:00:01.500000Z"),
        ("timestamp", {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 7, "1970-01-01T00:00:00.000007Z"),
        ("timestamp", {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 9000, "1970-01-01T00:00:00.000009Z"),
        ("timestamp", {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 9223372036825200000, LAST),
        ("timestamp", {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "infinity", LAST),
        ("timestamp", {"type": "string"}, "2024-02-29T12:00:00.25+02:00", "2024-02-29T10:00:00.250000Z"),
        ("date", {"type": "int32", "name": "io.debezium.time.Date"}, 19782, date(2024, 2, 29)),
        ("string", {"type": "int64", "name": "io.debezium.time.MicroTime"}, 3723500000, "01:02:03.5"),
        ("string", {"type": "int32", "name": "io.debezium.time.Time"}, 1000, "00:00:01"),
        (
            "decimal(10,2)",
            {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
            "AN3Y",
            Decimal("567.92"),
        ),
        (
            "decimal(10,2)",
            {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "1"}},
            "/w==",
            Decimal("-0.10"),
        ),
        (
            "string",
            {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
            {"scale": 3, "value": "BNI="},
            "1.234",
        ),
        ("decimal(10,2)", {"type": "string"}, "12.5", Decimal("12.50")),
        ("binary", {"type": "bytes"}, "AP8=", b"\x00\xff"),
        ("bool", {"type": "int16"}, 1, True),
        ("float32", {"type": "float"}, 1.1, 1.100000023841858),
        ("float64", {"type": "double"}, "NaN", "NaN"),
        ("list<string>", {"type": "array", "items": {"type": "string"}}, ["a", None], ["a", None]),
        ("struct<a: int64>", {"type": "string", "name": "io.debezium.data.Json"}, '{"a": 3, "b": 4}', {"a": 3}),
        ("string", {"type": "struct"}, {"x": 1.5}, '{"x": 1.5}'),
    ],
)
def test_what_the_schema_says_decides_what_a_value_means(
    shop: Shop, kind: str, schema: dict[str, Any], value: Any, expected: Any
) -> None:
    shop.declare({"id": "int64", "v": kind})
    shop.send(with_schema([{"type": "int64", "field": "id"}, {**schema, "field": "v"}], {"id": 1, "v": value}))
    (row,) = shop.rows()
    found = row["v"]
    if isinstance(found, datetime) and isinstance(expected, str):
        expected = datetime.fromisoformat(expected)
    assert found == expected or str(found).lower() == str(expected).lower()


def test_without_a_schema_the_settings_say_what_numbers_and_texts_mean(shop: Shop) -> None:
    shop.declare({"id": "int64", "at": "timestamp", "n": "decimal(10,2)"}, times="ms", decimals="string")
    shop.send(told("c", {"id": 1, "at": 1000, "n": "1.25"}))
    assert shop.rows() == [{"id": 1, "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "n": Decimal("1.25")}]


@pytest.mark.parametrize(
    ("columns", "row", "why"),
    [
        ({"at": "timestamp"}, {"at": 1000}, "column 'at'.*of what unit"),
        ({"n": "decimal(10,2)"}, {"n": "1.25"}, "say decimals='string'"),
        ({"n": "int16"}, {"n": 40000}, "not from -32768 to 32767"),
        ({"n": "int64"}, {"n": 1.5}, "not a whole number"),
        ({"n": "decimal(3,1)"}, {"n": 1.25}, "more digits"),
        ({"b": "binary"}, {"b": "not base64!"}, "is not binary"),
        ({"l": "list<int64>"}, {"l": 3}, "not a list"),
        ({"n": "string"}, {"n": "__debezium_unavailable_value"}, "was not sent, and is not held here"),
    ],
)
def test_a_value_that_does_not_fit_stops_with_its_offset(
    shop: Shop, columns: dict[str, str], row: dict[str, Any], why: str
) -> None:
    shop.declare({"id": "int64", **columns})
    with pytest.raises(BadMessage, match=f"'raw', partition 0: the message at offset 0 .*{why}"):
        shop.send(told("c", {"id": 1, **row}))
    assert shop.rows() == []


@pytest.mark.parametrize(
    ("kind", "key", "value", "why"),
    [
        ("debezium", None, "{", "not JSON"),
        ("debezium", None, {"id": 1, "name": "x"}, "flattened"),
        ("debezium", None, {"op": "x", "source": SOURCE}, "the op 'x'"),
        ("debezium", None, {"op": "c", "source": SOURCE, "after": None}, "no row after"),
        ("debezium", None, {"op": "d", "source": SOURCE, "before": None}, "does not tell 'id'"),
        ("debezium", None, [], "not an object"),
        ("debezium", None, {"op": "c", "source": SOURCE, "after": [1]}, "not an object"),
        ("debezium", "5", {"op": "c", "source": 3, "after": {"id": 1}}, "not as debezium writes it"),
        ("debezium", None, {"op": "c", "source": {**SOURCE, "sequence": "[1]"}, "after": {"id": 1}}, "not as debezium"),
        ("maxwell", None, {"database": "d"}, "not Maxwell's"),
        ("maxwell", None, {"type": "odd", "table": "people"}, "the type 'odd'"),
        ("maxwell", None, {"type": "insert", "table": "people"}, "no data"),
    ],
)
def test_bad_messages_are_put_aside_and_counted_if_so_told(
    shop: Shop, kind: str, key: Any, value: Any, why: str
) -> None:
    shop.declare({"id": "int64"}, kind, on_error="dead")
    good: dict[str, tuple[Any, Any]] = {
        "debezium": told("c", {"id": 5}),
        "maxwell": (None, {"type": "insert", "database": "x", "table": "people", "data": {"id": 5}}),
    }
    shop.send((key, value), good[kind])
    assert shop.rows() == [{"id": 5}]
    (dead,) = hw.Topic(shop.app.log, shop.app.log.topic("shop.dead")).read().to_pylist()
    assert why in dead["error"]
    assert (dead["topic"], dead["partition"], dead["offset"], dead["record"]) == ("raw", 0, 0, _text(value))
    state = State(shop.app.log, "shop")
    state.load()
    assert state.get("counts") == {"seen": 0, "dead": 1}


def test_what_is_no_change_of_a_row_is_passed_over(shop: Shop) -> None:
    shop.declare({"id": "int64"})
    shop.send(
        (None, {"ts_ms": 5}),
        (None, {"status": "BEGIN", "id": "5"}),
        (None, {"ddl": "CREATE TABLE x", "source": SOURCE}),
        told("c", {"id": 9}, table="another"),
        (None, {"op": "m", "source": {**SOURCE, "lsn": 16}, "message": {"prefix": "p", "content": "aGk="}}),
    )
    assert shop.rows() == []
    (note,) = hw.Topic(shop.app.log, shop.app.log.topic("shop.messages")).read().to_pylist()
    assert (note["prefix"], note["content"], note["lsn"]) == ("p", b"hi", "0/10")
    told_of = CliRunner().invoke(cli, ["capture", "status", "--log", shop.app.log.url, "--json"]).output
    assert [(each["position"], each["dead"]) for each in json.loads(told_of)] == [("raw:0=5", 0)]


def test_a_tombstone_whose_delete_was_compacted_away_takes_the_row(shop: Shop) -> None:
    shop.declare({"id": "int64"})
    shop.send(told("c", {"id": 1}, lsn=10), told("c", {"id": 2}, lsn=11), ({"id": 1}, None))
    assert shop.rows() == [{"id": 2}]
    # the tombstone of a delete comes again with what followed it: the row that came later stays
    again = [(told("d", None, before={"id": 2}, lsn=12)), ({"id": 2}, None), told("c", {"id": 2}, lsn=13)]
    shop.send(*again, told("c", {"id": 3}, lsn=14))
    shop.send(*again[1:], told("c", {"id": 3}, lsn=14))
    assert shop.rows() == [{"id": 2}, {"id": 3}]


def test_a_new_history_is_not_taken_for_an_old_one(shop: Shop) -> None:
    """A database that was restored begins with smaller places; its commits are later, or a snapshot comes first."""
    shop.declare({"id": "int64", "n": "int64"})
    shop.send(told("c", {"id": 1, "n": 1}, lsn=1000), told("u", {"id": 1, "n": 2}, lsn=5, ts_ms=2000))
    assert shop.rows() == [{"id": 1, "n": 2}]
    snapshot = told("r", {"id": 1, "n": 4}, lsn=3, ts_ms=9500)
    shop.send(told("u", {"id": 1, "n": 3}, lsn=9000), snapshot, told("u", {"id": 1, "n": 5}, lsn=2))
    assert shop.rows() == [{"id": 1, "n": 4}], "the last one was committed before what was taken"


def test_messages_of_several_partitions_of_kafka_poured_into_one_are_all_taken(shop: Shop) -> None:
    """Only those of one key are in order then."""
    shop.declare({"id": "int64", "n": "int64"})
    second = told("c", {"id": 2, "n": 1}, lsn=20), told("u", {"id": 2, "n": 2}, lsn=21)
    first = told("c", {"id": 1, "n": 1}, lsn=10), told("u", {"id": 1, "n": 2}, lsn=11)
    shop.send(*second, *first, second[0], first[0])
    assert shop.rows() == [{"id": 1, "n": 2}, {"id": 2, "n": 2}]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"connector": "mysql", "file": "b.000009", "pos": 4, "row": 1}, {"file": "b.000010", "pos": 3, "row": 0}),
        ({"connector": "sqlserver", "commit_lsn": "0a", "change_lsn": "1", "event_serial_no": 1}, {"commit_lsn": "0b"}),
        ({"connector": "oracle", "commit_scn": "99", "scn": "98"}, {"commit_scn": "100", "scn": "97"}),
    ],
)
def test_each_connector_has_places_of_its_own(shop: Shop, first: dict[str, Any], second: dict[str, Any]) -> None:
    shop.declare({"id": "int64", "n": "int64"})
    older = told("c", {"id": 1, "n": 1}, **first, ts_ms=1)
    newer = told("u", {"id": 1, "n": 2}, **{**first, **second}, ts_ms=1)
    shop.send(older, newer, older)
    assert shop.rows() == [{"id": 1, "n": 2}]


def test_mongodbs_documents_and_updates_of_some_fields(shop: Shop) -> None:
    shop.declare(
        {"id": "string", "name": "string", "n": "int64", "at": "timestamp", "address": "string", "tags": "list<string>"}
    )
    source = {"connector": "mongodb", "name": "m", "db": "shop", "collection": "people", "table": None, "schema": None}
    document = {
        "_id": {"$oid": "64a"},
        "name": "Ann",
        "n": {"$numberLong": "7"},
        "at": {"$date": 1000},
        "address": {"city": "Ulm", "zip": "1"},
        "tags": ["a", "b", "c"],
    }
    key = {"id": '{"$oid": "64a"}'}

    def message(op: str, after: Any, **more: Any) -> tuple[Any, Any]:
        text = json.dumps(after) if after is not None else None
        return key, {"op": op, "before": None, "after": text, "source": {**SOURCE, **source}, **more}

    shop.send(message("c", document))
    update = {
        "updatedFields": json.dumps({"address.city": "Bonn", "n": 8, "tags.1": "z"}),
        "removedFields": ["name", "address.zip"],
        "truncatedArrays": [{"field": "tags", "size": 2}],
    }
    shop.send(message("u", None, updateDescription=update))
    (row,) = shop.rows()
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert row == {
        "id": "64a",
        "name": None,
        "n": 8,
        "at": at,
        "address": '{"city": "Bonn"}',
        "tags": ["a", "z"],
    }
    shop.send(message("d", None), (key, None))
    assert shop.rows() == []
    with pytest.raises(BadMessage, match="whose row is not held here"):
        shop.send(message("u", None, updateDescription=update))


def test_what_cannot_be_read_into_tables_is_refused_when_it_is_declared(shop: Shop) -> None:
    app = shop.app
    app.topic("plain", {"id": "int64"})
    app.topic("unordered", {"value": "string"}, partitions=2)
    for url, tables, why in (
        ("debezium:nowhere", {"people": "people"}, "no topic 'nowhere'"),
        ("debezium:raw", {"people": "people"}, "no topic 'people' for table"),
        ("debezium:raw", {"people": "plain"}, "no table with a key"),
        ("debezium:plain", {"people": "people"}, "holds no messages"),
        ("debezium:raw", {"sales.*": "people"}, "not read by pattern"),
        ("maxwell:unordered", {"people": "people"}, "have no order"),
    ):
        with pytest.raises(BadCapture, match=why):
            app.capture(url, tables=tables)
    shop.declare({"id": "int64"})
    with pytest.raises(UsageError, match="declared twice"):
        app.capture("debezium:raw", tables=["people"], name="other")


def test_a_topic_written_in_debeziums_envelope_is_read_back(shop: Shop) -> None:
    columns = {
        "id": "int64",
        "at": "timestamp",
        "n": "decimal(9,2)",
        "day": "date",
        "raw": "binary",
        "l": "list<int64>",
    }
    origin = shop.app.topic("sales.origin", columns, key="id", kind="table")
    row = {
        "id": 1,
        "at": datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC),
        "n": Decimal("1.50"),
        "day": date(2024, 2, 29),
        "raw": b"\xff",
        "l": [1, None],
    }
    origin.append([row, {**row, "id": 2}])
    origin.append([{**row, "_weight": -1}, {**row, "n": Decimal("2.00")}])
    origin.append([{**row, "id": 2, "_weight": -1}, {**row, "id": 3}])
    url = shop.app.log.url
    lines = {}
    for options in ((), ("--schemas",)):
        asked = ["topic", "read", "sales.origin", "--log", url, "--format", "debezium", *options]
        lines[options] = [json.loads(line) for line in CliRunner().invoke(cli, asked).output.splitlines()]
    told = [json.loads(line["value"]) for line in lines[()] if line["value"]]
    assert sorted(each["op"] for each in told) == ["c", "c", "c", "d", "u"]
    update = next(each for each in told if each["op"] == "u")
    assert (update["before"]["n"], update["after"]["n"], update["after"]["day"]) == ("1.50", "2.00", 19782)
    source = update["source"]
    assert (source["schema"], source["table"], source["snapshot"]) == ("sales", "origin", "false")
    assert update["ts_us"] // 1000 == update["ts_ms"] >= source["ts_ms"]
    people = shop.app.topic("people", columns, key="id", kind="table")
    shop.app.capture("debezium:raw", tables={"sales.origin": people})
    shop.raw.append(lines["--schemas",])
    shop.app.run(until="caught-up")
    assert shop.rows() == [{**row, "n": Decimal("2.00")}, {**row, "id": 3}]


def test_of_a_view_whose_new_row_comes_before_the_old_one_the_update_is_told(shop: Shop) -> None:
    from headwater.capture.envelopes.writing import envelopes

    people = shop.app.topic("people", {"id": "int64", "n": "int64"}, key="id", kind="table", partitions=1)
    people.append([{"id": 1, "n": 1}])
    people.append([{"id": 1, "n": 2}, {"id": 1, "n": 1, "_weight": -1}])
    ops = [json.loads(each.value)["op"] for each in envelopes(shop.app.log, "people") if each.value]
    assert ops == ["c", "u"]
    shop.app.topic("facts", {"id": "int64"})
    with pytest.raises(UsageError, match="no table with a key"):
        next(envelopes(shop.app.log, "facts"))

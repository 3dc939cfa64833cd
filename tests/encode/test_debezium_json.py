"""debezium-json: a golden line, every type against values worked out from their parts, with and without schema."""

from __future__ import annotations

import base64
import json
import math
import struct
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.commit_ts import commit_ts_of, milliseconds_of
from penstock.encode import open_format
from penstock.errors import BadInput, NotSupported
from penstock.log.position import Seq
from penstock.schema.changes import SEQ_DTYPE, ChangeBatch, Presence
from penstock.schema.model import Column, TableSchema
from tests.encode.reference import KINDS, Change, batch_of, change_lists, float32, rows_of
from tests.support.budget import scaled

DEBEZIUM = open_format("debezium-json")
NAMES = ["int", *(name for name in KINDS if name != "int")]
COMMIT_TS = commit_ts_of(1_700_000_000_123) + 7
EPOCH = datetime(1970, 1, 1)
OPS = {"I": "c", "U": "u", "D": "d"}


def lines_of(payload: Any) -> list[dict[str, Any]]:
    text = bytes(payload).decode()
    assert text.endswith("\n") and "\r" not in text
    return [json.loads(line) for line in text.removesuffix("\n").split("\n")]


def plain_value(name: str, value: Any) -> Any:
    """The JSON value, from the parts of a value and not from its packed form."""
    kind = KINDS[name]
    column, base = kind.column, kind.column.base_type
    if value is None:
        return None
    if base == "date":
        day = kind.lake(value)
        return None if day is None else (day - date(1970, 1, 1)).days
    if base == "datetime":
        moment = kind.lake(value)
        unit = timedelta(microseconds=1) if column.arguments and column.arguments[0] > 3 else timedelta(milliseconds=1)
        return None if moment is None else (moment - EPOCH) // unit
    if base == "timestamp":
        moment = kind.lake(value)
        return None if moment is None else kind.text(value).replace(" ", "T") + "Z"
    if base == "bit":
        bits = column.arguments[0]
        return bool(value) if bits == 1 else base64.b64encode(value.to_bytes((bits + 7) // 8, "little")).decode()
    if base in ("enum", "set"):
        return kind.lake(value)
    if base == "point":
        return {"wkb": base64.b64encode(value[4:]).decode(), "srid": int.from_bytes(value[:4], "little") or None}
    if base == "vector":
        return list(struct.unpack(f"<{len(value) // 4}f", value))
    if kind.physical == pa.binary():
        return base64.b64encode(value).decode()
    if base == "decimal":
        return kind.text(value)
    return kind.pack(value)


def check(name: str, found: Any, expected: Any) -> None:
    if name == "vector" and expected is not None:
        assert [float32(number) for number in found] == expected
    elif name in ("float", "double") and expected is not None:
        number = float32(found) if name == "float" else float(found)
        assert number == expected and math.copysign(1, number) == math.copysign(1, expected)
    else:
        assert found == expected and type(found) is type(expected), (name, found, expected)


def test_golden_lines() -> None:
    images: list[dict[str, Any]] = [{"big": 1, "varchar": 'a"b', "enum": 2}, {"big": 1, "varchar": None, "enum": 2}]
    changes = [
        Change("I", None, images[0], Seq(1, 2, 3, 0), COMMIT_TS),
        Change("U", images[0], images[1], Seq(1, 2, 3, 1), COMMIT_TS),
        Change("D", images[1], None, Seq(1, 2, 4, 0), COMMIT_TS),
    ]
    source = (
        '"source":{"version":"1","connector":"mysql","name":"penstock","ts_ms":1700000000123,"snapshot":"false","db":"shop",'
        '"sequence":null,"table":"every thing","server_id":0,"gtid":null,"file":"","pos":0,"row":0,"thread":null,"query":null,'
        '"commit_ts":445644800032243719,"seq":'
    )
    first, second = (f'{{"big":1,"varchar":{text},"enum":"with space"}}' for text in ('"a\\"b"', "null"))
    expected = [
        f'{{"before":null,"after":{first},{source}"1:2:3:0"}},"transaction":null,"op":"c","ts_ms":1700000000123}}\n',
        f'{{"before":{first},"after":{second},{source}"1:2:3:1"}},"transaction":null,"op":"u","ts_ms":1700000000123}}\n',
        f'{{"before":{second},"after":null,{source}"1:2:4:0"}},"transaction":null,"op":"d","ts_ms":1700000000123}}\n',
    ]
    assert bytes(DEBEZIUM.encode(batch_of(["big", "varchar", "enum"], changes))).decode() == "".join(expected)


@given(change_lists(NAMES, max_size=6), st.booleans())
@settings(max_examples=scaled(30))
def test_every_type_is_as_its_parts_say(changes: list[Change], schema: bool) -> None:
    made = open_format("debezium-json", {"include_schema": schema, "name": "prod"})
    lines = lines_of(made.encode(batch_of(NAMES, changes)))
    for line, row in zip(lines, rows_of(NAMES, changes), strict=True):
        payload = line
        if schema:
            assert set(line) == {"schema", "payload"}
            payload = line["payload"]
            check_schema(line["schema"], payload)
        assert payload["op"] == OPS[row.op]
        assert payload["ts_ms"] == payload["source"]["ts_ms"] == milliseconds_of(row.commit_ts)
        assert payload["source"]["commit_ts"] == row.commit_ts
        assert payload["source"]["seq"] == str(row.seq)
        for image, found in ((row.before, payload["before"]), (row.after, payload["after"])):
            if image is None:
                assert found is None
                continue
            assert list(found) == NAMES
            for name in NAMES:
                check(name, found[name], plain_value(name, image[name]))
    rows = made.rows(made.assemble([made.encode(batch_of(NAMES, changes))]))
    assert rows["_op"].to_pylist() == [row.op for row in rows_of(NAMES, changes)]


CONNECT_TYPES: dict[str, Any] = {"int16": int, "int32": int, "int64": int, "float": (int, float), "double": (int, float), "string": str, "bytes": str, "boolean": bool, "struct": dict, "array": list}  # fmt: skip


def check_schema(schema: dict[str, Any], value: Any) -> None:
    """Every value has the type that the schema says, and no field is without one."""
    if value is None:
        assert schema["optional"], schema
        return
    assert isinstance(value, CONNECT_TYPES[schema["type"]]), (schema, value)
    if schema["type"] == "struct":
        assert {field["field"] for field in schema["fields"]} == set(value)
        for field in schema["fields"]:
            check_schema(field, value[field["field"]])
    if schema["type"] == "array":
        for item in value:
            check_schema(schema["items"], item)


def test_the_schema_names_the_logical_types() -> None:
    made = open_format("debezium-json", {"include_schema": True, "name": "prod"})
    nothing = dict.fromkeys(NAMES)
    (line,) = lines_of(made.encode(batch_of(NAMES, [Change("I", None, nothing, Seq(1, 1, 1, 1), 1)])))
    assert line["schema"]["name"] == "prod.shop.every_thing.Envelope"
    after = next(field for field in line["schema"]["fields"] if field["field"] == "after")
    assert after["name"] == "prod.shop.every_thing.Value"
    found = {field["field"]: (field["type"], field.get("name", "")) for field in after["fields"]}
    assert found["utiny"] == ("int16", "")
    assert found["usmall"] == ("int32", "")
    assert found["uint"] == ("int64", "")
    assert found["bit63"] == ("bytes", "io.debezium.data.Bits")
    assert found["date"] == ("int32", "io.debezium.time.Date")
    assert found["datetime3"] == ("int64", "io.debezium.time.Timestamp")
    assert found["datetime6"] == ("int64", "io.debezium.time.MicroTimestamp")
    assert found["timestamp6"] == ("string", "io.debezium.time.ZonedTimestamp")
    assert found["time6"] == ("int64", "io.debezium.time.MicroTime")
    assert found["year"] == ("int32", "io.debezium.time.Year")
    assert found["json"] == ("string", "io.debezium.data.Json")
    assert found["set"] == ("string", "io.debezium.data.EnumSet")
    assert found["point"] == ("struct", "io.debezium.data.geometry.Geometry")
    assert next(field for field in after["fields"] if field["field"] == "bit63")["parameters"] == {"length": "63"}


def test_a_column_that_is_never_null_shows_the_epoch() -> None:
    """As Debezium does with a zero date."""
    names = ["date", "datetime", "datetime6", "timestamp"]
    image = {"date": (0, 0, 0), "datetime": (2023, 2, 30, 1, 1, 1, 0), "datetime6": (0,) * 7, "timestamp": 0}
    batch = batch_of(names, [Change("I", None, image, Seq(1, 1, 1, 1), 1)])
    (line,) = lines_of(DEBEZIUM.encode(batch))
    assert line["after"] == dict.fromkeys(names)
    columns = tuple(replace(column, nullable=False) for column in batch.table.columns)
    (line,) = lines_of(DEBEZIUM.encode(replace(batch, table=replace(batch.table, columns=columns))))
    assert line["after"] == {"date": 0, "datetime": 0, "datetime6": 0, "timestamp": "1970-01-01T00:00:00Z"}


def test_times_before_1970_round_down() -> None:
    image = {"datetime3": (1969, 12, 31, 23, 59, 59, 999_000), "date": (1969, 12, 31)}
    (line,) = lines_of(DEBEZIUM.encode(batch_of(["datetime3", "date"], [Change("I", None, image, Seq(1, 1, 1, 1), 1)])))
    assert line["after"] == {"datetime3": -1, "date": -1}


def test_decimals_as_numbers() -> None:
    made = open_format("debezium-json", {"decimal": "double", "include_schema": True})
    image = {"money": -123456789012, "huge": 10**65 - 1}
    payload = bytes(made.encode(batch_of(["money", "huge"], [Change("I", None, image, Seq(1, 1, 1, 1), 1)]))).decode()
    assert '"after":{"money":-1234567890.12,"huge":' + "9" * 35 + "." + "9" * 30 + "}" in payload
    (line,) = lines_of(payload.encode())
    check_schema(line["schema"], line["payload"])


def test_an_update_of_the_key_is_a_delete_and_a_create() -> None:
    before, after = {"int": 1, "varchar": "a"}, {"int": 2, "varchar": "b"}
    batch = batch_of(["int", "varchar"], [Change("U", before, after, Seq(1, 1, 1, 1), 1)])
    found = [(line["op"], line["before"], line["after"]) for line in lines_of(DEBEZIUM.encode(batch))]
    assert found == [("d", before, None), ("c", None, after)]
    # Without a key, before and after say what happened.
    columns = tuple(replace(column, primary_key=False) for column in batch.table.columns)
    keyless = replace(batch, table=replace(batch.table, columns=columns))
    assert [(line["op"], line["before"]) for line in lines_of(DEBEZIUM.encode(keyless))] == [("u", before)]
    short = open_format("debezium-json", {"output_old_value": False})
    assert [line["op"] for line in lines_of(short.encode(keyless))] == ["d", "c"]


def test_old_values_are_left_out_on_demand() -> None:
    before, after = {"int": 1, "varchar": "a"}, {"int": 1, "varchar": "b"}
    changes = [
        Change("U", before, after, Seq(1, 1, 1, 1), 1),
        Change("D", after, None, Seq(1, 1, 1, 2), 1),
    ]
    short = open_format("debezium-json", {"output_old_value": False})
    lines = lines_of(short.encode(batch_of(["int", "varchar"], changes)))
    assert [(line["before"], line["after"]) for line in lines] == [(None, after), (after, None)]


def test_absent_columns_have_no_key() -> None:
    table = TableSchema("s", "t", 1, (Column("id", "int", primary_key=True), Column("a", "int"), Column("b", "int")))
    batch = ChangeBatch(
        table,
        np.frombuffer(b"UDI", np.uint8),
        np.zeros(3, SEQ_DTYPE),
        np.arange(3, dtype=np.uint64),
        [pa.array(values, pa.int32()) for values in ([1, 2, None], [3, None, None], [None, None, None])],
        [pa.array(values, pa.int32()) for values in ([None, None, 9], [4, None, None], [None, None, None])],
        Presence(np.array([[0b011], [0b001], [0]], np.uint8), np.arange(3)),
        Presence(np.array([[0b010], [0b000], [0b101]], np.uint8), np.arange(3)),
    )
    found = [(line["before"], line["after"]) for line in lines_of(DEBEZIUM.encode(batch))]
    assert found == [
        ({"id": 1, "a": 3}, {"id": 1, "a": 4}),  # what the image after lacks did not change
        ({"id": 2}, None),
        (None, {"id": 9, "b": None}),
    ]


def test_what_cannot_be_written_is_refused_by_name() -> None:
    table = TableSchema("d", "t", 1, (Column("c", "xmltype"),))
    one = np.frombuffer(b"I", np.uint8), np.zeros(1, SEQ_DTYPE), np.array([1], np.uint64)
    with pytest.raises(NotSupported, match="column c has type xmltype"):
        DEBEZIUM.encode(ChangeBatch(table, *one, [pa.array(["x"])], [pa.array(["x"])]))
    short = batch_of(["point"], [Change("I", None, {"point": b"\x01"}, Seq(1, 1, 1, 1), 1)])
    with pytest.raises(BadInput, match="a geometry without a SRID"):
        DEBEZIUM.encode(short)
    with pytest.raises(BadInput, match="options of debezium-json"):
        open_format("debezium-json", {"name": "a b"})


def test_a_line_is_never_below_its_least() -> None:
    for schema in (True, False):
        made = open_format("debezium-json", {"include_schema": schema})
        table = TableSchema("d", "t", 1, tuple(Column(f"c{i}", "bigint") for i in range(300)))
        nulls: list[pa.Array[Any]] = [pa.nulls(2, pa.int64())] * 300
        op, ts = np.frombuffer(b"II", np.uint8), np.full(2, COMMIT_TS, np.uint64)
        payload = memoryview(made.encode(ChangeBatch(table, op, np.zeros(2, SEQ_DTYPE), ts, nulls, nulls)))
        assert made.row_bytes_min(table) <= payload.nbytes / 2

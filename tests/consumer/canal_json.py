"""The rows of a Canal-JSON file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.consumer.schemas import Schema
from tests.consumer.violation import require, violated

_OPS = {"INSERT": "I", "UPDATE": "U", "DELETE": "D"}
_KEYS = {
    "id",
    "database",
    "table",
    "pkNames",
    "isDdl",
    "type",
    "es",
    "ts",
    "sql",
    "sqlType",
    "mysqlType",
    "data",
    "old",
}
_BINARY = re.compile(r"(tiny|medium|long)?blob|(var)?binary|geometry|point|linestring|polygon|multi\w+|vector")


@dataclass(frozen=True)
class Row:
    """A change. `before` is what is known of the row before it: its key at least, if the table has one."""

    op: str
    commit_ts: int
    values: dict[str, Any]
    before: dict[str, Any] | None = None
    where: str = ""


def read_rows(path: Path, schema: Schema, terminator: str = "\r\n") -> Iterator[Row]:
    text = path.read_bytes().decode()
    lines = text.split(terminator)
    if lines[-1] == "":
        lines.pop()  # a missing last terminator is fine
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        require(line, "blank-line", where, "the consumer ends the file here")
        require("\r" not in line and "\n" not in line, "terminator", where, "a part of a terminator")
        try:
            value = json.loads(line)
        except ValueError as error:
            violated("json", where, str(error))
        yield _row(value, schema, where)


def _row(value: Any, schema: Schema, where: str) -> Row:
    require(isinstance(value, dict), "json", where, "no object")
    require(value.get("isDdl") is False, "ddl-line", where, "the consumer skips it")
    require(isinstance(value.get("mysqlType"), dict), "mysql-type", where, "without it the row is lost")
    require(value.keys() >= _KEYS and value["type"] in _OPS, "json", where, f"{sorted(_KEYS - value.keys())}")
    require((value["database"], value["table"]) == (schema.schema, schema.table), "names", where, "another table")
    commit_ts = (value.get("_tidb") or {}).get("commitTs")
    if type(commit_ts) is not int or commit_ts <= 0:
        violated("commit-ts", where, f"{commit_ts!r}")
    rows = value["data"]
    require(isinstance(rows, list) and len(rows) == 1, "one-row", where, "only the first row is read")
    types = value["mysqlType"]
    require(list(types) == schema.names and types.keys() >= rows[0].keys(), "mysql-type", where, f"{list(types)}")
    require(isinstance(value["pkNames"], list), "pk-names", where, "deletes have no effect")
    require(value["pkNames"] == schema.key, "pk-names", where, f"{value['pkNames']}, not {schema.key}")
    _values(rows[0], types, where)
    old = value["old"]
    before = None
    if old is not None:
        require(isinstance(old, list) and len(old) == 1 and value["type"] == "UPDATE", "old", where, f"{old!r}")
        require(isinstance(old[0], dict) and old[0].keys() <= types.keys(), "old", where, f"{old!r}")
        _values(old[0], types, where)
        before = {**rows[0], **old[0]}
    return Row(_OPS[value["type"]], commit_ts, rows[0], before, where)


def _values(row: dict[str, Any], types: dict[str, str], where: str) -> None:
    for name, value in row.items():
        kind = types[name]
        word = re.split(r"[( ]", kind)[0]
        require(word == word.lower(), "mysql-type-case", where, kind)
        require(value is None or isinstance(value, str), "value", where, f"{name} is {value!r}")
        if value is None:
            continue
        if word in ("enum", "set"):
            require(value.isdecimal(), "enum-number", where, f"{name} is {value!r}")
        if _BINARY.fullmatch(word):
            require(all(ord(character) < 256 for character in value), "latin1", where, name)

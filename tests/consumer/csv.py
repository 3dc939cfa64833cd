"""The rows of a CSV file."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.consumer.canal_json import Row
from tests.consumer.schemas import Schema
from tests.consumer.violation import require, violated

_INTEGERS = {"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "BIT", "YEAR"}
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_BINARY = re.compile(r"(TINY|MEDIUM|LONG)?BLOB|(VAR)?BINARY")


@dataclass(frozen=True)
class CsvSettings:
    """`[sink.csv]` of the consumer's configuration."""

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    include_commit_ts: bool = False
    binary_encoding: str = "base64"
    output_old_value: bool = False
    output_field_header: bool = False
    terminator: str = "\r\n"

    @property
    def own(self) -> int:
        """How many fields stand before the columns."""
        return 3 + self.include_commit_ts + self.output_old_value


def read_rows(path: Path, schema: Schema, settings: CsvSettings) -> Iterator[Row]:
    lines = list(_lines(path, settings))
    if settings.output_field_header:
        header = [text for text, _ in lines.pop(0)] if lines else []
        wanted = [name.lower() for name in schema.names]
        require(
            [n.lower() for n in header[settings.own :] if n is not None] == wanted, "csv-columns", path, f"{header}"
        )
    for number, line in enumerate(lines, 1):
        where = f"{path}: line {number}"
        require(len(line) == settings.own + len(schema.columns), "csv-columns", where, f"{len(line)} fields")
        op, table, name = (text for text, _ in line[:3])
        require(op in ("I", "U", "D"), "csv-op", where, f"{op!r}")
        require((name, table) == (schema.schema, schema.table), "names", where, f"{name}.{table}")
        commit_ts = 0
        if settings.include_commit_ts:
            ts = line[3][0] or ""
            require(ts.isdecimal() and int(ts) > 0, "commit-ts", where, f"{ts!r}")
            commit_ts = int(ts)
        values = {}
        for column, (text, _) in zip(schema.columns, line[settings.own :], strict=True):
            if text is not None:
                _check(column["ColumnType"].split()[0], column.get("ColumnElems"), text, settings, where)
            values[column["ColumnName"]] = text
        yield Row(str(op), commit_ts, values, None, where)


def _check(kind: str, elements: list[str] | None, text: str, settings: CsvSettings, where: str) -> None:
    good = True
    if kind in _INTEGERS:
        good = re.fullmatch(r"-?\d+", text) is not None
    elif kind in ("FLOAT", "DOUBLE", "DECIMAL"):
        good = _NUMBER.fullmatch(text) is not None
    elif kind == "ENUM":
        good = text in (elements or []) or text == ""
    elif kind == "SET":
        good = not text or all(part in (elements or []) for part in text.split(","))
    elif _BINARY.fullmatch(kind):
        try:
            bytes.fromhex(text) if settings.binary_encoding == "hex" else base64.b64decode(text, validate=True)
        except ValueError:
            good = False
    require(good, "csv-value", where, f"{text!r} is no {kind}")


def _lines(path: Path, settings: CsvSettings) -> Iterator[list[tuple[str | None, bool]]]:
    text, place = path.read_bytes().decode(), 0
    while place < len(text):
        if text.startswith(settings.terminator, place):
            place += len(settings.terminator)  # a blank line is harmless here
            continue
        line: list[tuple[str | None, bool]] = []
        while True:
            found, place = _field(text, place, settings, path)
            line.append(found)
            if text.startswith(settings.terminator, place):
                place += len(settings.terminator)
                break
            require(text.startswith(settings.delimiter, place), "csv-syntax", path, f"{text[place : place + 30]!r}")
            place += len(settings.delimiter)
        yield line


def _field(text: str, place: int, settings: CsvSettings, path: Path) -> tuple[tuple[str | None, bool], int]:
    quote, start = settings.quote, place
    if quote and text.startswith(quote, place):
        place += 1
        while True:
            end = text.find(quote, place)
            if end < 0:
                violated("csv-syntax", path, f"a quote without its end: {text[start : start + 30]!r}")
            if not text.startswith(quote, end + 1):
                return (text[start + 1 : end].replace(quote * 2, quote), True), end + 1
            place = end + 2
    found = ""
    while not text.startswith((settings.delimiter, settings.terminator), place):
        require(place < len(text) and text[place] not in "\r\n", "csv-syntax", path, f"{text[start : start + 30]!r}")
        if not quote and text[place] == "\\" and text[place + 1 :][:1] not in ("", "N"):
            found += {"n": "\n", "r": "\r"}.get(text[place + 1], text[place + 1])
            place += 2
            continue
        found += text[place]
        place += 1
    return (None if text[start:place] == settings.null else found, False), place

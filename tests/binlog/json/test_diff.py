"""PARTIAL_UPDATE_ROWS: after images whose JSON is a list of differences."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from penstock.binlog.errors import BadEvent
from penstock.binlog.json.diff import apply_diffs, describe_diffs
from penstock.binlog.types import ColumnType as C
from penstock.errors import NotSupported
from tests.binlog.build import image, rows, table_map
from tests.binlog.test_presence import ABSENT, decode, shown

REPLACE, INSERT, REMOVE = range(3)
STRING = {text: b"\x0c" + bytes([len(text)]) + text.encode() for text in ("new", "x")}
SEVEN = b"\5\7\0"
DOCUMENT = b"\0\1\0\x0c\0\x0b\0\1\0\5\1\0a"  # {"a": 1}


def diff(operation: int, path: str, value: bytes | None = None) -> bytes:
    out = bytes([operation, len(path)]) + path.encode()
    return out if value is None else out + bytes([len(value)]) + value


@pytest.mark.parametrize(
    ("document", "diffs", "expected"),
    [
        ('{"a": 1}', b"", '{"a": 1}'),
        ('{"a": 1}', diff(REPLACE, "$.a", SEVEN), '{"a": 7}'),
        ('{"a": 1}', diff(REPLACE, "$", SEVEN), "7"),
        ('{"b": 1}', diff(INSERT, "$.a", STRING["x"]), '{"a": "x", "b": 1}'),
        ('{"bb": 1}', diff(INSERT, "$.c", SEVEN), '{"c": 7, "bb": 1}'),  # shorter names come first
        ('{"a": 1, "b": 2}', diff(REMOVE, "$.a"), '{"b": 2}'),
        ("[1, 2]", diff(INSERT, "$[1]", SEVEN), "[1, 7, 2]"),
        ("[1, 2]", diff(INSERT, "$[2]", SEVEN), "[1, 2, 7]"),
        ("[1, 2]", diff(REMOVE, "$[0]"), "[2]"),
        (
            '[{"a b": [1, {"ü": 2.50}]}]',
            diff(REPLACE, '$[0]."a b"[0]', STRING["new"]),
            '[{"a b": ["new", {"ü": 2.50}]}]',
        ),
        ('{"q\\"x": 1}', diff(REPLACE, '$."q\\"x"', SEVEN), '{"q\\"x": 7}'),
        (
            '{"n": 12345678901234567890.1, "a": []}',
            diff(INSERT, "$.a[0]", SEVEN) + diff(INSERT, "$.a[0]", STRING["x"]),
            '{"a": ["x", 7], "n": 12345678901234567890.1}',
        ),
    ],
)
def test_differences(document: str, diffs: bytes, expected: str) -> None:
    assert apply_diffs(document, diffs) == expected


@pytest.mark.parametrize(
    "diffs",
    [
        diff(REPLACE, "$.b", SEVEN),
        diff(REMOVE, "$[0]"),
        diff(REMOVE, "$"),
        diff(INSERT, "$[0]", SEVEN),
        diff(REPLACE, "a", SEVEN),
        diff(REPLACE, "$..a", SEVEN),
        diff(REPLACE, "$.a", SEVEN)[:-1],
        diff(REPLACE, "$.a", b"\x0b\1"),
        b"\0",
        bytes([9]) + diff(REPLACE, "$.a", SEVEN)[1:],
    ],
)
def test_differences_that_cannot_be_applied(diffs: bytes) -> None:
    with pytest.raises(ValueError):
        apply_diffs('{"a": 1}', diffs)


def test_differences_for_people() -> None:
    diffs = diff(REPLACE, "$.a", SEVEN) + diff(INSERT, '$."b c"[0]', STRING["x"]) + diff(REMOVE, "$.d")
    said = 'JSON_REPLACE("$.a", 7), JSON_INSERT("$.\\"b c\\"[0]", "x"), JSON_REMOVE("$.d")'
    assert describe_diffs(diffs) == said
    with pytest.raises(ValueError):
        describe_diffs(bytes([9]) + diff(REPLACE, "$.a", SEVEN)[1:])


def value(raw: bytes) -> bytes:
    return struct.pack("<I", len(raw)) + raw


def partial(bits: int | None, fields: list[bytes | None]) -> bytes:
    """An after image: value options, which JSON columns are partial, and the image itself."""
    return (b"\0" if bits is None else bytes([1, bits])) + image(fields)


def changed(before: list[bytes | None], after: bytes, present: Any = None) -> list[Any]:
    columns = [(C.LONG, b""), (C.JSON, b"\4"), (C.TINY, b""), (C.JSON, b"\4")]
    (decoded,) = decode(table_map(columns) + rows(39, 4, [image(before), after], present=present))
    return shown(decoded)[0][2] or []


KEY = struct.pack("<i", 5)


def test_the_document_is_that_of_the_before_image() -> None:
    before = [KEY, value(DOCUMENT), b"\1", value(DOCUMENT)]
    one = value(diff(REPLACE, "$.a", SEVEN))
    assert changed(before, partial(1, [KEY, one, b"\2", value(DOCUMENT)])) == [5, '{"a": 7}', 2, '{"a": 1}']
    assert changed(before, partial(2, [KEY, None, b"\2", one])) == [5, None, 2, '{"a": 7}']
    assert changed(before, partial(3, [KEY, one, b"\2", value(b"")])) == [5, '{"a": 7}', 2, '{"a": 1}']
    assert changed(before, partial(None, before)) == [5, '{"a": 1}', 1, '{"a": 1}']


def test_without_a_document_before_it_nobody_knows_the_one_after_it() -> None:
    """With MINIMAL images. Were the column left out, it would look as if it had not changed."""
    one = value(diff(REPLACE, "$.a", SEVEN))
    after = partial(2, [value(DOCUMENT), one])
    with pytest.raises(NotSupported, match=r"offset \d+ \(PARTIAL_UPDATE_ROWS\).*#4.*binlog_row_image=FULL"):
        changed([KEY], after, (b"\1", b"\x0a"))
    whole = partial(0, [value(DOCUMENT), value(DOCUMENT)])
    assert changed([KEY], whole, (b"\1", b"\x0a")) == [ABSENT, '{"a": 1}', ABSENT, '{"a": 1}']


def test_what_is_wrong_names_its_event() -> None:
    before = [KEY, value(DOCUMENT), b"\1", value(DOCUMENT)]
    with pytest.raises(BadEvent, match=r"PARTIAL_UPDATE_ROWS.*#2.*does not have"):
        changed(before, partial(1, [KEY, value(diff(REMOVE, "$.z")), b"\2", None]))
    with pytest.raises(BadEvent, match="ends inside a row"):
        changed(before, b"\1")
    with pytest.raises(BadEvent, match="ends inside a row"):
        changed(before, b"\2" + image(before))

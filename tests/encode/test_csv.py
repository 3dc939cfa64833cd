"""CSV: the lines of the facts page, every type and option against a reader of its own, and what is refused."""

from __future__ import annotations

import base64
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.commit_ts import commit_ts_of
from penstock.encode import open_format
from penstock.encode.settings import CsvOptions
from penstock.errors import BadInput, NotSupported
from penstock.log.position import Seq
from penstock.schema.changes import SEQ_DTYPE, ChangeBatch, Presence
from penstock.schema.model import Column, TableSchema
from tests.encode.reference import KINDS, Change, batch_of, change_lists, equal_text, float32, rows_of
from tests.support.budget import scaled

NAMES = list(KINDS)
BARE = {"tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year", "float", "double"}
TS = 435661838416609281


def options(**given: Any) -> CsvOptions:
    return CsvOptions.model_validate(given)


DIALECTS = [
    options(),
    options(
        delimiter="|", quote="'", null_string="NULL", include_commit_ts=True, binary_encoding="hex", terminator="lf"
    ),
    options(delimiter="[*]", quote="", include_commit_ts=True, output_field_header=True),
    options(delimiter="\t", quote="", output_old_value=True, terminator="lf"),
    options(delimiter="|@|", output_old_value=True, include_commit_ts=True, output_field_header=True, null_string=""),
    options(output_handle_key=True, output_old_value=True, include_commit_ts=True),
    options(delimiter="||", quote=""),
]


class PlainReader:
    """A character at a time. A field is (text, whether it was in quotes)."""

    def __init__(self, text: str, given: CsvOptions) -> None:
        self.text, self.given, self.place = text, given, 0
        self.terminator = {"crlf": "\r\n", "lf": "\n"}[given.terminator]

    def lines(self) -> list[list[tuple[str, bool]]]:
        lines = []
        while self.place < len(self.text):
            line = [self.field()]
            while self.take(self.given.delimiter):
                line.append(self.field())
            assert self.take(self.terminator), self.text[self.place :][:50]
            lines.append(line)
        return lines

    def take(self, expected: str) -> bool:
        if self.text.startswith(expected, self.place):
            self.place += len(expected)
            return True
        return False

    def field(self) -> tuple[str, bool]:
        quote, found = self.given.quote, ""
        if quote and self.take(quote):
            while True:
                if self.take(quote * 2):
                    found += quote
                elif self.take(quote):
                    return found, True
                else:
                    found += self.text[self.place]
                    self.place += 1
        while not self.text.startswith((self.given.delimiter, self.terminator), self.place):
            found += self.text[self.place]
            self.place += 1
            if not quote and found[-1] == "\\":
                found += self.text[self.place]
                self.place += 1
        return found, False


def unescaped(text: str) -> str:
    out, letters = "", iter(text)
    for letter in letters:
        out += {"n": "\n", "r": "\r"}.get(after, after) if letter == "\\" and (after := next(letters)) else letter
    return out


def plain_value(name: str, value: Any, given: CsvOptions) -> str:
    """What a field says, from the parts of a value and not from its packed form."""
    kind = KINDS[name]
    base = kind.column.base_type
    if base in ("enum", "set"):
        return str(kind.lake(value))
    if base == "vector":
        return "[" + ",".join(str(number) for number in struct.unpack(f"<{len(value) // 4}f", value)) + "]"
    if kind.physical == pa.binary():
        return value.hex() if given.binary_encoding == "hex" else base64.b64encode(value).decode()
    return kind.text(value)


def check_field(name: str, value: Any, found: tuple[str, bool], given: CsvOptions) -> None:
    text, quoted = found
    if value is None:
        assert (text, quoted) == (given.null_string, False), name
        return
    assert quoted == (bool(given.quote) and KINDS[name].column.base_type not in BARE), name
    if not given.quote:
        assert text != given.null_string
        text = unescaped(text)
    expected = plain_value(name, value, given)
    if name == "vector":
        numbers = [[float32(float(n)) for n in listed[1:-1].split(",") if n] for listed in (text, expected)]
        assert numbers[0] == numbers[1]
        return
    assert equal_text(name, text, expected), (name, text, expected)


@pytest.mark.parametrize("given_options", DIALECTS, ids=str)
@given(data=st.data())
@settings(max_examples=scaled(12))
def test_every_type_in_every_dialect(given_options: CsvOptions, data: st.DataObject) -> None:
    given, names = given_options, ["int", *(name for name in NAMES if name != "int")]
    changes = data.draw(change_lists(names, max_size=5))
    csv = open_format("csv", given)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(changes)), max_size=2)))
    batch = batch_of(names, changes)
    file = csv.assemble([csv.encode(batch.slice(a, b)) for a, b in pairwise([0, *cuts, len(changes)])])
    assert bytes(file) == bytes(csv.encode(batch)), "the file does not depend on how its rows were cut"
    lines = PlainReader(bytes(file).decode(), given).lines()
    if given.output_field_header:
        own = [
            "operation",
            "table",
            "schema",
            *["commit-ts"] * given.include_commit_ts,
            *["is-update"] * given.output_old_value,
        ]
        assert [unescaped(text) for text, _ in lines.pop(0)] == [*(f"ticdc-meta${name}" for name in own), *names]
    rows = rows_of(names, changes, every_update=given.output_old_value)
    updates = {change.seq for change in changes if change.op == "U"}
    for line, row in zip(lines, rows, strict=True):
        fields = iter(line)
        quoted = bool(given.quote)
        assert next(fields) == (row.op, quoted)
        assert next(fields) == ("every thing", quoted)
        assert next(fields) == ("shop", quoted)
        if given.include_commit_ts:
            assert next(fields) == (str(row.commit_ts), False)
        if given.output_old_value:
            assert next(fields) == (str(row.seq in updates).lower(), False)
        if given.output_handle_key:
            key = row.shown["int"]
            assert next(fields) == ((given.null_string, False) if key is None else (str(key), quoted))
        for name in names:
            check_field(name, row.shown[name], next(fields), given)
        assert next(fields, None) is None


@given(change_lists(NAMES, max_size=5))
@settings(max_examples=scaled(15))
def test_rows_reads_every_dialect_back(changes: list[Change]) -> None:
    for chosen in DIALECTS:
        csv = open_format("csv", chosen)
        table = csv.rows(csv.encode(batch_of(NAMES, changes)))
        rows = rows_of(NAMES, changes, every_update=chosen.output_old_value)
        assert table["_op"].to_pylist() == [row.op for row in rows]
        assert ("_commit_ts" in table.column_names) == chosen.include_commit_ts
        place = table.column_names.index(NAMES[0] if chosen.output_field_header else "c0")
        for offset, name in enumerate(NAMES):
            found = table.column(place + offset).to_pylist()
            assert [value is None for value in found] == [row.shown[name] is None for row in rows], name


def change_of(op: str, columns: list[tuple[Column, Any]], before: list[Any] | None = None) -> ChangeBatch:
    table = TableSchema("test", "table1", 1, tuple(column for column, _ in columns))
    after = [pa.array([value], pa.int32() if isinstance(value, int) else pa.string()) for _, value in columns]
    old = after if before is None else [pa.array([v], a.type) for v, a in zip(before, after, strict=True)]
    return ChangeBatch(table, np.frombuffer(op.encode(), np.uint8), np.zeros(1, SEQ_DTYPE), np.array([TS], np.uint64), old, after)  # fmt: skip


NUMBER, STRING, OTHER = Column("n", "int", primary_key=True), Column("s", "varchar(20)"), Column("t", "varchar(20)")


@pytest.mark.parametrize(
    ("given", "op", "columns", "line"),
    [
        # From the anchor's own tests of its encoder: what they expect of each configuration.
        (options(include_commit_ts=True, terminator="lf"), "I", [(NUMBER, 123), (STRING, "hello,world")], '"I","table1","test",435661838416609281,123,"hello,world"\n'),
        (options(delimiter="!", quote="", include_commit_ts=True, terminator="lf"), "U", [(STRING, "a!b!c"), (OTHER, "def")], r"D!table1!test!435661838416609281!a\!b\!c!def" "\nI" r"!table1!test!435661838416609281!a\!b\!c!def" "\n"),
        (options(delimiter="!", quote="", include_commit_ts=True, output_old_value=True, terminator="lf"), "I", [(STRING, "a!b!c"), (OTHER, "def")], r"I!table1!test!435661838416609281!false!a\!b\!c!def" "\n"),
        (options(delimiter="[*]", quote=""), "D", [(STRING, "a[*]b[*]c"), (OTHER, "def")], r"D[*]table1[*]test[*]a\[\*\]b\[\*\]c[*]def" "\r\n"),
        (options(delimiter="[*]", quote="'", terminator="lf"), "I", [(STRING, "a[*]b[*]c"), (OTHER, None)], r"'I'[*]'table1'[*]'test'[*]'a[*]b[*]c'[*]\N" "\n"),
        (options(quote="", include_commit_ts=True, terminator="lf"), "I", [(STRING, "a\\b\\c"), (OTHER, "def\n")], r"I,table1,test,435661838416609281,a\\b\\c,def\n" "\n"),
        (options(quote="'", terminator="lf"), "I", [(STRING, "\\"), (OTHER, "\\\r")], "'I','table1','test','\\','\\\r'\n"),
        (options(delimiter="\t", include_commit_ts=True, terminator="lf"), "D", [(STRING, "a\tb"), (OTHER, "你好，世界")], '"D"\t"table1"\t"test"\t435661838416609281\t"a\tb"\t"你好，世界"\n'),
        (options(), "I", [(STRING, '"a,b,c'), (OTHER, "")], '"I","table1","test","""a,b,c",""\r\n'),
        (options(delimiter="***", quote=""), "I", [(STRING, "abc***def"), (OTHER, "**")], "I***table1***test***abc\\*\\*\\*def***\\*\\*\r\n"),
    ],
)  # fmt: skip
def test_golden_lines(given: CsvOptions, op: str, columns: list[tuple[Column, Any]], line: str) -> None:
    batch = change_of(op, columns)
    if op == "U":  # a table without a key: an update is a delete and an insert, if something changed
        assert bytes(open_format("csv", given).encode(batch)).decode().startswith("U!")
        batch = change_of(op, columns, before=[columns[0][1], "old"])
        line = line.replace("c!def\nI", "c!old\nI")
    assert bytes(open_format("csv", given).encode(batch)).decode() == line


def test_an_update_is_one_line_unless_it_changes_the_key() -> None:
    columns: list[tuple[Column, Any]] = [(NUMBER, 7), (STRING, "new")]
    csv = open_format("csv", options(terminator="lf"))
    same_key = bytes(csv.encode(change_of("U", columns, before=[7, "old"]))).decode()
    assert same_key == '"U","table1","test",7,"new"\n'
    other_key = bytes(csv.encode(change_of("U", columns, before=[6, "old"]))).decode()
    assert other_key == '"D","table1","test",6,"old"\n"I","table1","test",7,"new"\n'
    old_values = open_format("csv", options(output_old_value=True, terminator="lf"))
    both = bytes(old_values.encode(change_of("U", columns, before=[7, "old"]))).decode()
    assert both == '"D","table1","test",true,7,"old"\n"I","table1","test",true,7,"new"\n'


def test_the_header_is_as_the_anchor_writes_it() -> None:
    columns: list[tuple[Column, Any]] = [(Column("col1", "int"), 1), (Column("col 2,", "int"), 2)]
    batch = change_of("I", columns)
    every = options(delimiter=";", output_old_value=True, include_commit_ts=True, output_field_header=True)
    first = bytes(open_format("csv", every).encode(batch)).decode().split("\r\n")[0]
    assert (
        first
        == "ticdc-meta$operation;ticdc-meta$table;ticdc-meta$schema;ticdc-meta$commit-ts;ticdc-meta$is-update;col1;col 2,"
    )
    plain = bytes(open_format("csv", options(output_field_header=True)).encode(batch)).decode().split("\r\n")[0]
    assert plain == 'ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,col1,"col 2,"'


def test_a_header_may_hold_line_ends() -> None:
    given = options(output_field_header=True, terminator="lf")
    csv = open_format("csv", given)
    batch = change_of("I", [(Column('a"\nb', "int"), 1), (Column("x" * 5000, "int"), 2)])
    file = bytes(csv.assemble([csv.encode(batch), csv.encode(batch.slice(0, 0)), csv.encode(batch)]))
    assert [len(line) for line in PlainReader(file.decode(), given).lines()] == [5, 5, 5]
    with pytest.raises(BadInput, match="different table versions"):
        csv.assemble([csv.encode(batch), csv.encode(change_of("I", [(Column("c", "int"), 1)]))])


def test_keys_of_several_columns_and_none() -> None:
    csv = open_format("csv", options(output_handle_key=True, terminator="lf"))
    two = change_of("I", [(NUMBER, 5), (Column("s", "varchar(9)", primary_key=True), 'x"')])
    assert bytes(csv.encode(two)).decode() == '"I","table1","test","{5, x""}",5,"x"""\n'
    none = change_of("I", [(STRING, "x")])
    assert bytes(csv.encode(none)).decode() == '"I","table1","test",\\N,"x"\n'


def test_absent_columns_are_null() -> None:
    """A line has every column of the table: TiCDC's consumer counts them."""
    table = TableSchema("s", "t", 1, (Column("id", "int", primary_key=True), Column("a", "int"), Column("b", "int")))
    batch = ChangeBatch(
        table,
        np.frombuffer(b"UD", np.uint8),
        np.zeros(2, SEQ_DTYPE),
        np.arange(2, dtype=np.uint64),
        [pa.array(values, pa.int32()) for values in ([1, 2], [3, None], [None, None])],
        [pa.array(values, pa.int32()) for values in ([None, None], [4, None], [None, None])],
        Presence(np.array([[0b011], [0b001]], np.uint8), np.arange(2)),
        Presence(np.array([[0b010], [0b000]], np.uint8), np.arange(2)),
    )
    csv = open_format("csv", options(terminator="lf"))
    assert bytes(csv.encode(batch)).decode() == '"U","t","s",1,4,\\N\n"D","t","s",2,\\N,\\N\n'


def test_no_rows_are_no_bytes_and_no_header() -> None:
    for chosen in (options(), options(output_field_header=True)):
        csv = open_format("csv", chosen)
        assert bytes(csv.encode(change_of("I", [(NUMBER, 1)]).slice(0, 0))) == b""
        assert csv.rows(b"").num_rows == 0


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(NotSupported, match="column c has type xmltype"):
        open_format("csv").encode(change_of("I", [(Column("c", "xmltype"), "x")]))


def test_a_vector_that_is_none_is_refused() -> None:
    batch = batch_of(["vector"], [Change("I", None, {"vector": b"abc"}, Seq(1, 1, 1, 1), commit_ts_of(1))])
    with pytest.raises(BadInput, match="not made of 32-bit floats"):
        open_format("csv").encode(batch)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"delimiter": ""}, "at least 1 character"),
        ({"delimiter": "abcd"}, "at most 3 characters"),
        ({"delimiter": "1"}, "which numbers or escapes have too"),
        ({"delimiter": "-"}, "which numbers or escapes have too"),
        ({"delimiter": "\\"}, "which numbers or escapes have too"),
        ({"delimiter": "\n"}, "printable ASCII"),
        ({"delimiter": "ß"}, "printable ASCII"),
        ({"delimiter": '","'}, "is in the delimiter or in null_string"),
        ({"quote": "''"}, "at most 1 character"),
        ({"quote": "\r"}, "printable ASCII"),
        ({"quote": "7"}, "values have it too"),
        ({"null_string": "a,b"}, "is in null_string"),
        ({"delimiter": "||", "null_string": "NULL|"}, "ends as the delimiter"),
        ({"null_string": '"'}, "is in the delimiter or in null_string"),
        ({"null_string": "0"}, "may be a number"),
        ({"null_string": "NULL", "quote": ""}, "must begin with a backslash"),
        ({"delimiter": "/", "quote": ""}, "times and base64 have it too"),
        ({"binary_encoding": "base32"}, "'base64' or 'hex'"),
        ({"terminator": "\n"}, "'crlf' or 'lf'"),
        ({"unknown": 1}, "Extra inputs"),
    ],
)
def test_options_that_nobody_could_read_back_are_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        open_format("csv", given)


def test_options_of_another_format_are_refused() -> None:
    with pytest.raises(BadInput, match="CsvOptions are not options of parquet"):
        open_format("parquet", options())
    with pytest.raises(BadInput, match="the format 'tsv' is unknown"):
        open_format("tsv")


def test_a_value_that_ends_as_the_delimiter_begins_is_told_from_it() -> None:
    """`a|` and the delimiter `||` would be `a|||`, which reads as `a` and `|`."""
    given = options(delimiter="||", quote="")
    for values in (("a|", "b"), ("|", "|"), ("a||", "|||"), ("|a", "b|")):
        columns: list[tuple[Column, Any]] = [(STRING, values[0]), (OTHER, values[1])]
        lines = PlainReader(bytes(open_format("csv", given).encode(change_of("I", columns))).decode(), given).lines()
        assert [field.replace("\\", "") for field, _ in lines[0][3:]] == list(values)

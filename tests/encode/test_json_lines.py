"""Lines read back in columns say what a plain JSON parser says of each line, whatever the values are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.encode import open_format
from penstock.encode.json_lines import JsonLines
from penstock.log.position import Seq
from tests.encode.reference import KINDS, Change, batch_of, change_lists
from tests.support.budget import scaled

NAMES = list(KINDS)
Row = tuple[bytes, str, int, dict[str, Any]]


def canal_rows(line: dict[str, Any]) -> Iterator[Row]:
    """A line as rows, slowly: an update that changed the key is a delete and an insert."""
    seq, commit_ts = Seq.parse(line["_penstock"]["seq"]).to_bytes(), line["_tidb"]["commitTs"]
    data, old = line["data"][0], (line["old"] or [{}])[0]
    before = {**data, **old}
    if line["type"] == "UPDATE" and any(before[name] != data[name] for name in line["pkNames"] or data):
        yield seq, "D", commit_ts, before
        yield seq, "I", commit_ts, data
    else:
        yield seq, line["type"][0], commit_ts, data


def debezium_rows(line: dict[str, Any]) -> Iterator[Row]:
    line = line.get("payload", line)
    source, image = line["source"], line["before"] if line["op"] == "d" else line["after"]
    yield Seq.parse(source["seq"]).to_bytes(), {"c": "I", "u": "U", "d": "D"}[line["op"]], source["commit_ts"], image


READERS = {"canal-json": canal_rows, "debezium-json": debezium_rows}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("canal-json", {}),
    ("canal-json", {"old": "all", "terminator": "lf"}),
    ("debezium-json", {}),
    ("debezium-json", {"include_schema": True, "terminator": "crlf", "decimal": "double"}),
]


def meaning(text: str | None, value: Any) -> Any:
    """What stands in a column, as a JSON parser would have it."""
    return text if text is None or isinstance(value, str) else json.loads(text)


@pytest.mark.parametrize(("name", "options"), OPTIONS)
@given(changes=change_lists(NAMES))
@settings(max_examples=scaled(30))
def test_rows_are_what_each_line_says(name: str, options: dict[str, Any], changes: list[Change]) -> None:
    fmt = open_format(name, options)
    file = bytes(fmt.encode(batch_of(NAMES, changes)))
    terminator = options.get("terminator", "crlf" if name == "canal-json" else "lf")
    lines = file.decode().split("\r\n" if terminator == "crlf" else "\n")[:-1]
    expected = [row for line in lines for row in READERS[name](json.loads(line))]
    table = fmt.rows(file)
    assert table.num_rows == len(expected)
    for got, (seq, op, commit_ts, image) in zip(table.to_pylist(), expected, strict=True):
        assert (got["_seq"], got["_op"], got["_commit_ts"]) == (seq, op, commit_ts)
        assert {column: meaning(got[column], image[column]) for column in NAMES} == image


@given(st.lists(st.text(), min_size=1, max_size=5), st.booleans())
def test_every_string_means_what_it_meant(values: list[str], ascii_only: bool) -> None:
    file = b"".join(
        json.dumps({"a": {"ü\n": v}}, ensure_ascii=ascii_only, separators=(",", ":")).encode() + b"\n" for v in values
    )
    if ascii_only:  # the name too is written with an escape, which none of our encoders does: it is not found
        file = file.replace(b"\\u00fc", "ü".encode())
    lines = JsonLines(file, "\n")
    lines.find([("a", "ü\n")])
    assert lines.text(lines.spans(("a", "ü\n"))).to_pylist() == values


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"}", b"x", b"[1", b'{"a"', b'{"a":', b'{"a":}', b'{"a":1', b'{"a":"', b'{"a":"\\', b'{"a":1}}', b'{"a":{"b":1]}',
     b'{"a":1,}', b'{a:1}', b'{"a":[{"b":1}', b'{"a":' + b'[' * 20 + b"]" * 20 + b"}"],
)  # fmt: skip
def test_what_is_no_line_of_ours_is_refused(line: bytes) -> None:
    lines = JsonLines(b'{"a":{"b":1}}\n' + line + b"\n", "\n")
    with pytest.raises(ValueError, match="line 2 is not as the format has it"):
        lines.find([("a", "b")])


@given(st.lists(st.integers(0, 700), max_size=40))
def test_lines_of_any_length_are_told_apart(lengths: list[int]) -> None:
    """Newlines are looked for in blocks, of which the last one is shorter."""
    lines = [b'{"a":"%s"}' % (b"x" * length) for length in lengths]
    found = JsonLines(b"".join(line + b"\n" for line in lines), "\n")
    assert [found.line(number) for number in range(len(found))] == lines


def test_more_lines_than_were_guessed() -> None:
    found = JsonLines(b"{}\n" * 10_000, "\n")
    assert len(found) == 10_000
    assert {found.line(number) for number in range(10_000)} == {b"{}"}


def test_a_line_without_an_end() -> None:
    with pytest.raises(ValueError, match="no end"):
        JsonLines(b'{"a":1}\n{"a":2}', "\n")


def test_columns_that_come_later_are_found() -> None:
    """With a small row image a line has some of the columns; which ones, differs from line to line."""
    head = b'{"before":null,"after":'
    tail = b',"source":{"commit_ts":1,"seq":"1:2:3:4"},"op":"c"}\n'
    file = b"".join(head + image + tail for image in (b'{"a":1}', b'{"b":"x"}', b'{"a":2,"c":null}'))
    rows = open_format("debezium-json").rows(file)
    assert rows.select(["a", "b", "c"]).to_pydict() == {"a": ["1", None, "2"], "b": [None, "x", None], "c": [None] * 3}

"""The consumer accepts a good sink, and rejects it with one violation of each requirement planted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.consumer.consumer import ConsumerSettings, read_sink, settings_for
from tests.consumer.csv import CsvSettings
from tests.consumer.schemas import checksum_of
from tests.consumer.violation import REQUIREMENTS, Violation

DAY = "2026-11-16"
FIRST, SECOND = 100 << 18, 900 << 18  # versions
ID = {"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnNullable": "false", "ColumnIsPk": "true"}
COLUMNS: list[dict[str, Any]] = [
    ID,
    {"ColumnName": "kind", "ColumnType": "ENUM", "ColumnElems": ["a", "b"]},
    {"ColumnName": "raw", "ColumnType": "BLOB", "ColumnPrecision": "65535"},
]
TYPES = {"id": "int(11)", "kind": "enum('a','b')", "raw": "blob"}


def put_schema(root: Path, version: int, columns: list[dict[str, Any]], query: str, kind: int, **other: Any) -> Path:
    value: dict[str, Any] = {"Table": "t", "Schema": "d", "Version": 1, "TableVersion": version, "Query": query, "Type": kind, "TableColumns": columns or None, "TableColumnsTotal": len(columns)}  # fmt: skip
    value |= other
    directory = root / "d" / value["Table"] / "meta" if value["Table"] else root / "d" / "meta"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"schema_{version}_{checksum_of(value):010d}.json"
    path.write_text(json.dumps(value, indent=4))
    return path


def line(op: str, commit_ts: int, data: dict[str, Any], **changed: Any) -> dict[str, Any]:
    value = {
        "id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": op, "es": 1, "ts": 1, "sql": "",
        "sqlType": {}, "mysqlType": TYPES, "old": None, "data": [data], "_tidb": {"commitTs": commit_ts},
    }  # fmt: skip
    return {**value, **changed}


LINES = [
    line("INSERT", FIRST + 1, {"id": "1", "kind": "1", "raw": "\x00ÿ"}),
    line("INSERT", FIRST + 1, {"id": "2", "kind": "2", "raw": None}),
    line("UPDATE", FIRST + 2, {"id": "3", "kind": "2", "raw": None}, old=[{"id": "2"}]),
    line("DELETE", FIRST + 3, {"id": "1", "kind": "1", "raw": "\x00ÿ"}),
]
CSV_LINES = [
    f'"I","t","d",{FIRST + 1},1,"a","AP8="',
    f'"I","t","d",{FIRST + 1},2,"b",\\N',
    f'"D","t","d",{FIRST + 2},2,"b",\\N',
    f'"I","t","d",{FIRST + 2},3,"b",\\N',
    f'"D","t","d",{FIRST + 3},1,"a","AP8="',
]
CSV = settings_for("csv", complete=True, csv=CsvSettings(include_commit_ts=True))
CANAL = settings_for("canal-json", complete=True)


def put_lines(path: Path, lines: list[Any], end: str = "\r\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in lines]
    path.write_bytes("".join(text + end for text in texts).encode())


def good(root: Path, lines: list[Any] | None = None, extension: str = ".json") -> Path:
    """Two files of the first version, one of the second; a database; all of it drained."""
    shutil.rmtree(root, ignore_errors=True)
    put_schema(root, 1, [], "CREATE DATABASE d", 1, Table="")
    put_schema(root, FIRST, COLUMNS, "CREATE TABLE d.t (…)", 3)
    put_schema(root, SECOND, [ID], "ALTER TABLE d.t DROP kind, DROP raw", 6)
    lines = LINES if lines is None else lines
    first = root / "d" / "t" / str(FIRST) / DAY
    put_lines(first / f"CDC{1:020d}{extension}", lines[:2])
    put_lines(first / f"CDC{2:020d}{extension}", lines[2:])
    (first / "meta").mkdir()
    (first / "meta" / "CDC.index").write_text(f"CDC{2:020d}{extension}\n")
    (root / "metadata").write_text(f'{{"checkpoint-ts":{SECOND + 5}}}')
    (root / "foo").mkdir()
    (root / "foo" / "bar.txt").write_text("ignored")
    return root


def test_a_good_sink_is_rebuilt(tmp_path: Path) -> None:
    for settings, lines, extension, kind in ((CANAL, None, ".json", "2"), (CSV, CSV_LINES, ".csv", "b")):
        found = read_sink(good(tmp_path, lines, extension), settings)
        assert found.tables["d", "t"].rows == {("3",): {"id": "3"}}, "the second version has one column"
        assert (found.files, found.checkpoint_ts) == (2, SECOND + 5)
        shutil.rmtree(tmp_path / "d" / "t" / "meta")
        put_schema(tmp_path, FIRST, COLUMNS, "", 0)
        assert read_sink(tmp_path, settings).tables["d", "t"].rows == {("3",): {"id": "3", "kind": kind, "raw": None}}


def test_what_a_crash_leaves_is_accepted_until_the_sink_is_drained(tmp_path: Path) -> None:
    root = good(tmp_path)
    put_lines(data(root, 3), LINES[:1])
    assert read_sink(root, replace(CANAL, layout=replace(CANAL.layout, settled=False))).files == 2
    with pytest.raises(Violation, match="index-behind"):
        read_sink(root, CANAL)


def data(root: Path, number: int, extension: str = ".json") -> Path:
    return root / "d" / "t" / str(FIRST) / DAY / f"CDC{number:020d}{extension}"


def index(root: Path) -> Path:
    return root / "d" / "t" / str(FIRST) / DAY / "meta" / "CDC.index"


def table_schema(root: Path, version: int = FIRST) -> Path:
    return next((root / "d" / "t" / "meta").glob(f"schema_{version}_*"))


def edit_schema(root: Path, **changed: Any) -> None:
    path = table_schema(root)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def move(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    path.rename(to)


def with_line(number: int, **changed: Any) -> Callable[[Path], None]:
    """The last file with one of its lines changed; a value of None removes the key."""

    def plant(root: Path) -> None:
        value = {key: v for key, v in {**LINES[number], **changed}.items() if v is not REMOVED}
        put_lines(data(root, 1), [value if n == number else each for n, each in enumerate(LINES)][:2])
        put_lines(data(root, 2), [value if n == number else each for n, each in enumerate(LINES)][2:])

    return plant


REMOVED = object()


def csv_with(number: int, text: str) -> Callable[[Path], None]:
    def plant(root: Path) -> None:
        lines = [text if n == number else each for n, each in enumerate(CSV_LINES)]
        put_lines(data(root, 1, ".csv"), lines[:2])
        put_lines(data(root, 2, ".csv"), lines[2:])

    return plant


PLANTED: list[tuple[str, Callable[[Path], object]]] = [
    ("metadata", lambda root: (root / "metadata").write_text("{")),
    ("metadata", lambda root: (root / "metadata").write_text('{"checkpoint-ts":"5"}')),
    ("schema-name", lambda root: move(table_schema(root), root / "d/t/meta" / f"schema_{FIRST}_123456789.json")),
    ("schema-depth", lambda root: shutil.copy(table_schema(root), root / "foo" / table_schema(root).name)),
    ("schema-json", lambda root: edit_schema(root, Type="3")),
    ("schema-json", lambda root: edit_schema(root, TableColumnsTotal=9)),
    ("schema-checksum", lambda root: move(table_schema(root), root / "d/t/meta" / f"schema_{FIRST}_0000000001.json")),
    ("schema-version", lambda root: edit_schema(root, TableVersion=FIRST + 1)),
    ("schema-twice", lambda root: put_schema(root, FIRST, [ID], "", 0)),
    ("schema-names", lambda root: edit_schema(root, Table="other")),
    ("schema-missing", lambda root: table_schema(root).unlink()),
    ("create-database", lambda root: put_schema(root, 2, [], "CREATE DATABASE d", 0, Table="")),
    ("rename", lambda root: put_schema(root, SECOND + 1, [ID], "ALTER TABLE d.u RENAME TO d.t", 14)),
    ("one-table", lambda root: put_schema(root, SECOND + 1, [], "DROP TABLE d.t, e.u", 4)),
    ("one-table", lambda root: put_schema(root, SECOND + 1, [], "DROP TABLE d.u", 4)),
    ("qualified", lambda root: put_schema(root, SECOND + 1, [ID], "ALTER TABLE t ADD INDEX (id)", 7)),
    ("runs", lambda root: put_schema(root, SECOND + 1, [ID], "RENAME TABLE d.u TO d.t", 14)),
    ("runs", lambda root: put_schema(root, SECOND + 1, [ID], "CREATE TABLE d.t (id int)", 3)),
    ("index-place", lambda root: move(index(root), index(root).parent.parent / "CDC.index")),
    ("index-missing", lambda root: index(root).unlink()),
    ("index-content", lambda root: index(root).write_bytes(f"{data(root, 2).name}\r\n".encode())),
    ("index-content", lambda root: index(root).write_text("")),
    ("index-content", lambda root: index(root).write_text(str(data(root, 2)))),
    ("index-ahead", lambda root: index(root).write_text(f"{data(root, 3).name}\n")),
    ("index-ahead", lambda root: data(root, 1).unlink()),
    ("index-behind", lambda root: index(root).write_text(f"{data(root, 1).name}\n")),
    ("file-name", lambda root: move(data(root, 1), data(root, 1).with_name("CDC000001.json"))),
    ("date", lambda root: move(data(root, 1).parent, data(root, 1).parent.with_name("2026-11"))),
    ("checkpoint", lambda root: (root / "metadata").write_text(f'{{"checkpoint-ts":{FIRST - 1}}}')),
    ("order", with_line(2, _tidb={"commitTs": FIRST})),
    ("version-range", with_line(3, _tidb={"commitTs": SECOND + 1})),
    ("version-range", with_line(0, _tidb={"commitTs": FIRST - 1})),
    ("terminator", lambda root: put_lines(data(root, 2), LINES[2:], "\n")),
    ("blank-line", lambda root: put_lines(data(root, 2), [LINES[2], "", LINES[3]])),
    ("json", lambda root: put_lines(data(root, 2), ["{"])),
    ("json", with_line(2, type="UPSERT")),
    ("ddl-line", with_line(2, isDdl=True)),
    ("one-row", with_line(2, data=[LINES[2]["data"][0], LINES[3]["data"][0]])),
    ("value", with_line(2, data=[{"id": 3, "kind": "2", "raw": None}])),
    ("enum-number", with_line(2, data=[{"id": "3", "kind": "b", "raw": None}])),
    ("latin1", with_line(2, data=[{"id": "3", "kind": "2", "raw": "€"}])),
    ("mysql-type", with_line(2, mysqlType=REMOVED)),
    ("mysql-type", with_line(2, mysqlType={"id": "int(11)", "kind": "enum('a','b')"})),
    ("mysql-type-case", with_line(2, mysqlType={**TYPES, "kind": "ENUM('a','b')"})),
    ("pk-names", with_line(3, pkNames=None)),
    ("pk-names", with_line(3, pkNames=["kind"])),
    ("commit-ts", with_line(2, _tidb=REMOVED)),
    ("names", with_line(2, database="other")),
    ("old", with_line(2, old=[{"nothing": "1"}])),
    ("row-twice", with_line(1, data=[LINES[0]["data"][0]])),
    ("row-twice", with_line(3, data=[{"id": "9", "kind": "1", "raw": None}])),
]
PLANTED_CSV: list[tuple[str, Callable[[Path], object]]] = [
    ("csv-columns", csv_with(2, f'"D","t","d",{FIRST + 2},2,"b"')),
    ("csv-op", csv_with(2, CSV_LINES[2].replace('"D"', '"d"'))),
    ("csv-syntax", csv_with(2, CSV_LINES[2].replace('"b"', '"b'))),
    ("csv-syntax", lambda root: put_lines(data(root, 2, ".csv"), CSV_LINES[2:], "\n")),
    ("csv-value", csv_with(2, CSV_LINES[2].replace('"b"', '"2"'))),
    ("csv-value", csv_with(0, CSV_LINES[0].replace("AP8=", "\x00"))),
    ("commit-ts", csv_with(2, CSV_LINES[2].replace(str(FIRST + 2), "0"))),
    ("names", csv_with(2, CSV_LINES[2].replace('"t"', '"u"'))),
    ("order", csv_with(2, CSV_LINES[2].replace(str(FIRST + 2), str(FIRST)))),
    ("row-twice", csv_with(3, CSV_LINES[4])),
]


@pytest.mark.parametrize(("requirement", "plant"), PLANTED, ids=[f"{n}-{name}" for n, (name, _) in enumerate(PLANTED)])
def test_a_planted_violation_is_found(tmp_path: Path, requirement: str, plant: Callable[[Path], object]) -> None:
    _found(good(tmp_path), CANAL, requirement, plant)


@pytest.mark.parametrize(("requirement", "plant"), PLANTED_CSV, ids=[f"{n}-{name}" for n, (name, _) in enumerate(PLANTED_CSV)])  # fmt: skip
def test_a_planted_violation_of_csv_is_found(tmp_path: Path, requirement: str, plant: Callable[[Path], object]) -> None:
    _found(good(tmp_path, CSV_LINES, ".csv"), CSV, requirement, plant)


def _found(root: Path, settings: ConsumerSettings, requirement: str, plant: Callable[[Path], object]) -> None:
    read_sink(root, settings)
    plant(root)
    with pytest.raises(Violation) as caught:
        read_sink(root, settings)
    assert caught.value.requirement == requirement, caught.value


@pytest.mark.parametrize("seqs", [(b"a" * 24, b"a" * 24), (b"b" * 24, b"a" * 24), (b"a", b"b")])
def test_parquet_rows_in_another_order_are_found(tmp_path: Path, seqs: tuple[bytes, bytes]) -> None:
    settings = settings_for("parquet", complete=True)
    layout = settings.layout
    put_schema(tmp_path, FIRST, [ID], "CREATE TABLE d.t (…)", 3)
    (tmp_path / "d" / "t" / "meta").rename(tmp_path / "d" / "t" / layout.meta)
    directory = tmp_path / "d" / "t" / f"version={FIRST}" / f"date={DAY}"
    (directory / layout.meta).mkdir(parents=True)
    (directory / layout.meta / "CDC.index").write_text("CDC000001.parquet")
    for rows, good_one in ((tuple(sorted({bytes([65 + n]) * 24 for n in range(2)})), True), (seqs, False)):
        moments = pa.array([0, 0], pa.timestamp("us", "UTC"))
        table = pa.table({"_op": ["I", "I"], "_commit_ts": moments, "_seq": list(rows), "id": [1, 2]})
        pq.write_table(table, directory / "CDC000001.parquet")
        if good_one:
            assert len(read_sink(tmp_path, settings).tables["d", "t"].rows) == 2
        else:
            with pytest.raises(Violation, match="parquet"):
                read_sink(tmp_path, settings)


def test_every_requirement_has_a_planted_violation() -> None:
    assert {name for name, _ in PLANTED + PLANTED_CSV} | {"parquet"} == set(REQUIREMENTS)

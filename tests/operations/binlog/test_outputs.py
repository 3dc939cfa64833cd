"""Where the changes go: files that are whole after an error, too, and figures about them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from penstock.errors import BadInput
from penstock.operations.binlog.decode import DecodeOptions, decode_files
from penstock.operations.binlog.stats import StatsReader
from penstock.operations.binlog.table_files import TableFiles, file_name
from penstock.schema.model import TableSchema
from tests.operations.binlog.build import ITEM, STOCK, BinlogFile


def written() -> BinlogFile:
    file = BinlogFile()
    file.ddl(ITEM)
    file.ddl(STOCK)
    file.inserts("item", [1, 2])
    file.inserts("stock", [3])
    file.begin()
    file.rollback()
    return file


def nothing(data: object) -> None:
    raise AssertionError("nothing goes to standard output")


def test_lines_go_to_a_new_file_for_this_user_alone(tmp_path: Path) -> None:
    path, out = written().write(tmp_path), tmp_path / "out.jsonl"
    decode_files([path], DecodeOptions(out=out), nothing)
    assert len(out.read_text().splitlines()) == 6
    assert out.stat().st_mode & 0o077 == 0
    with pytest.raises(BadInput, match="is there already"):
        decode_files([path], DecodeOptions(out=out), nothing)


@pytest.mark.parametrize("extension", ["parquet", "arrow"])
def test_a_file_for_each_table_and_shape(tmp_path: Path, extension: str) -> None:
    file = written()
    file.ddl("ALTER TABLE stock CHANGE id num BIGINT")  # not what the rows say: read by their table map
    file.inserts("stock", [4])
    file.broken = {len(file.events) - 1}
    file.inserts("item", [5])
    file.broken = {len(file.events) - 1}
    out = tmp_path / "out"
    with pytest.raises(BadInput, match="checksum"):
        decode_files([file.write(tmp_path)], DecodeOptions(format=extension, out=out), nothing)  # type: ignore[arg-type]
    assert sorted(path.name for path in out.iterdir()) == [
        "_events.jsonl", f"shop.item.{extension}", f"shop.stock.2.{extension}", f"shop.stock.{extension}",
    ]  # fmt: skip

    def rows(name: str) -> list[dict[str, object]]:
        path = out / f"{name}.{extension}"
        table = pq.read_table(path) if extension == "parquet" else pa.ipc.open_file(str(path)).read_all()
        return table.to_pylist()

    items = rows("shop.item")
    assert [row["after"] for row in items] == [{"id": 1, "name": "n"}, {"id": 2, "name": "n"}]
    assert [(row["op"], row["before"], row["row"]) for row in items] == [("insert", None, 0), ("insert", None, 1)]
    assert {(row["file"], row["pos"], row["gtid"]) for row in items} == {("bin.000001", file.starts[2], "0-7-3")}
    assert [row["after"] for row in rows("shop.stock")] == [{"id": 3}]
    assert [row["after"] for row in rows("shop.stock.2")] == [{"@1": 4}]
    assert items[0]["event"] < rows("shop.stock")[0]["event"] < rows("shop.stock.2")[0]["event"]  # type: ignore[operator]
    lines = [json.loads(line)["op"] for line in (out / "_events.jsonl").read_text().splitlines()]
    assert lines == ["ddl", "ddl", "rollback", "ddl", "incomplete"]


def test_lines_before_damage_end_with_one_that_says_so(tmp_path: Path) -> None:
    file = written()
    file.inserts("item", [5])
    file.broken = {len(file.events) - 1}
    out = tmp_path / "out.jsonl"
    with pytest.raises(BadInput, match="checksum") as caught:
        decode_files([file.write(tmp_path)], DecodeOptions(out=out, tables=("shop.stock",)), nothing)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["op"] for line in lines] == ["ddl", "insert", "incomplete"]
    assert lines[-1] == {"op": "incomplete", "reason": caught.value.message}


@pytest.mark.parametrize("format", ["jsonl", "parquet", "arrow"])
def test_an_end_that_the_user_asks_for_leaves_whole_files(tmp_path: Path, format: str) -> None:
    calls = iter(range(100))

    def may_end() -> None:
        if next(calls) == 3:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        decode_files([written().write(tmp_path)], DecodeOptions(format=format, out=out), nothing, may_end=may_end)  # type: ignore[arg-type]
    lines = (out if format == "jsonl" else out / "_events.jsonl").read_text().splitlines()
    assert json.loads(lines[-1]) == {"op": "incomplete", "reason": "interrupted"}
    if format == "parquet":
        assert pq.read_table(out / "shop.item.parquet").num_rows == 2


def test_a_file_that_cannot_be_ended_leaves_the_others_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = TableFiles(tmp_path, "parquet")
    batch = pa.record_batch({"a": [1]})
    for name in ("a", "b", "c"):
        files.write(TableSchema("s", name, 1, ()), batch)

    class Broken:
        def write_table(self, table: object, **options: object) -> None:
            raise OSError("no space left")

    files._open["s", "b"].writer._writer.close()  # type: ignore[attr-defined]
    monkeypatch.setattr(files._open["s", "b"].writer, "_writer", Broken())
    with pytest.raises(OSError, match="no space left"):
        files.close()
    assert [pq.read_table(tmp_path / f"s.{name}.parquet").num_rows for name in "ac"] == [1, 1]


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    path = written().write(tmp_path)
    with pytest.raises(BadInput, match="not an empty directory"):
        decode_files([path], DecodeOptions(format="parquet", out=tmp_path), nothing)
    with pytest.raises(BadInput, match="--format arrow needs --out"):
        decode_files([path], DecodeOptions(format="arrow"), nothing)


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, "parquet", open_max=2)
    batch = pa.record_batch({"a": [1]})
    for name in ("a", "b", "c", "a"):
        files.write(TableSchema("s", name, 1, ()), batch)
    files.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "s.a.2.parquet", "s.a.parquet", "s.b.parquet", "s.c.parquet",
    ]  # fmt: skip
    assert all(pq.read_table(path).num_rows == 1 for path in tmp_path.iterdir())


def test_names_of_any_length_have_files(tmp_path: Path) -> None:
    files = TableFiles(tmp_path, "parquet")
    for name in ("表" * 63 + "一", "表" * 63 + "二"):
        files.write(TableSchema("库" * 64, name, 1, ()), pa.record_batch({"a": [1]}))
    files.close()
    assert len(list(tmp_path.iterdir())) == 2
    assert all(len(path.name) < 255 for path in tmp_path.iterdir())


def test_a_directory_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no directory"):
        decode_files([written().write(tmp_path)], DecodeOptions(out=tmp_path / "no" / "x.jsonl"), nothing)


def test_names_of_files_are_harmless() -> None:
    assert file_name("../etc", "pass wd.é") == "%2E%2E%2Fetc.pass%20wd%2E%C3%A9"


def test_figures(tmp_path: Path) -> None:
    file = written()
    file.begin()
    file.insert("item", range(7, 70))
    file.delete("item", [1, 2])
    file.query("DELETE FROM stock")
    file.commit()
    file.xa_begin("x")
    file.insert("stock", [9])
    file.xa_prepare("x")
    path = file.write(tmp_path)
    figures = StatsReader([path]).read().to_json()
    assert figures["bytes"] == path.stat().st_size
    assert figures["events"]["TABLE_MAP"] == 5
    assert figures["transactions"] == {"committed": 3, "rollback": 1, "xa-prepare": 1}
    assert (figures["ddl"], figures["rows"]) == (2, 68)
    item, stock = figures["tables"]
    assert (item["table"], item["insert"], item["delete"], item["events"]) == ("item", 65, 2, 3)
    assert item["bytes"] == sum(len(raw) for raw in file.events if raw[4] in (23, 25) and raw[19] == 1)
    assert (stock["table"], stock["rows"]) == ("stock", 1)
    largest = figures["largest_transactions"]
    assert [one["rows"] for one in largest] == [65, 2, 1]
    assert largest[0]["position"] == f"bin.000001:{file.starts[5]}"
    assert largest[0]["bytes"] == max(one["bytes"] for one in largest)


def test_a_transaction_in_parts_is_one_in_the_figures(tmp_path: Path) -> None:
    from penstock.operations.binlog.reading import FileReader

    file = BinlogFile()
    file.begin()
    for i in range(50):
        file.insert("stock", [i])
    file.commit()
    path = file.write(tmp_path)
    whole = StatsReader([path])
    parts = StatsReader([path])
    parts._reader = FileReader(parts._reader._files, look=parts._look, events_bytes_max=300)
    ours, theirs = parts.read().to_json(), whole.read().to_json()
    assert ours["largest_transactions"][0]["rows"] == theirs["largest_transactions"][0]["rows"] == 50
    assert ours["transactions"] == theirs["transactions"] == {"committed": 1}
    assert ours["tables"] == theirs["tables"]

"""What is a change: transactions of every ending, in files of both families, whole and cut into parts."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from penstock.binlog.errors import BadEvent
from penstock.errors import BadInput, PenstockError
from penstock.operations.binlog.given_files import GivenFiles
from penstock.sources.source import SourceError
from tests.operations.binlog.build import ITEM, STOCK, BinlogFile, decoded, short

# The events of a whole transaction; a few rows of it: it is given out in parts, and waits for its end.
BYTES_MAX = (1 << 20, 200)

both = pytest.mark.parametrize("mysql", [False, True], ids=["mariadb", "mysql"])
parts = pytest.mark.parametrize("bytes_max", BYTES_MAX, ids=["whole", "in parts"])


def started(*, mysql: bool = False) -> BinlogFile:
    made = BinlogFile(mysql=mysql)
    made.ddl(ITEM)
    made.ddl(STOCK)
    return made


@both
@parts
def test_changes_come_in_the_order_of_the_log_with_names_and_places(
    tmp_path: Path, mysql: bool, bytes_max: int
) -> None:
    file = started(mysql=mysql)
    file.begin()
    for i in range(40):
        file.insert("item" if i % 3 else "stock", [i], name=f"n{i}")
    file.delete("item", [1], name="n1")
    file.commit()
    file.inserts("stock", [100, 101])
    lines = decoded(file.write(tmp_path), events_bytes_max=bytes_max)
    assert [line["op"] for line in lines[:2]] == ["ddl", "ddl"]
    assert lines[0]["changes"] == [{"kind": "create", "schema": "shop", "table": "item"}]
    assert short(lines[2:]) == [
        *(f"insert {'item' if i % 3 else 'stock'} {i}" for i in range(40)), "delete item 1",
        "insert stock 100", "insert stock 101",
    ]  # fmt: skip
    assert {line["position"] for line in lines[2:43]} == {f"bin.000001:{file.starts[2]}"}
    assert {line["position"] for line in lines[43:]} == {f"bin.000001:{file.starts[3]}"}
    uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    assert [lines[0]["gtid"], lines[2]["gtid"]] == ([f"{uuid}:1", f"{uuid}:3"] if mysql else ["0-7-1", "0-7-3"])
    assert lines[3]["after"] == {"id": 1, "name": "n1"}
    assert lines[42]["before"] == {"id": 1, "name": "n1"}
    assert lines[42]["after"] is None


@both
@parts
def test_rows_that_were_rolled_back_are_not_changes(tmp_path: Path, mysql: bool, bytes_max: int) -> None:
    file = started(mysql=mysql)
    file.inserts("item", [1])
    file.begin()
    for i in range(30):
        file.insert("item", [100 + i])
    file.rollback()
    file.inserts("item", [2])
    file.begin()
    file.insert("item", [3])
    file.savepoint("s")
    for i in range(30):
        file.insert("item", [200 + i])
    file.rollback_to("s")
    file.insert("item", [4])
    file.commit()
    lines = decoded(file.write(tmp_path), events_bytes_max=bytes_max)
    assert short(lines[2:]) == ["insert item 1", "rollback", "insert item 2", "insert item 3", "insert item 4"]
    assert lines[3]["position"] == f"bin.000001:{file.starts[3]}"
    assert lines[3]["reason"] == "statement"


@both
@parts
def test_an_xa_group_counts_when_it_commits(tmp_path: Path, mysql: bool, bytes_max: int) -> None:
    file = started(mysql=mysql)
    for xid, first in (("good", 10), ("bad", 20), ("left", 30)):
        file.xa_begin(xid)
        for i in range(20):
            file.insert("item", [first * 10 + i])
        file.xa_prepare(xid)
    file.inserts("stock", [1])
    file.xa_commit("bad", rollback=True)
    file.xa_commit("good")
    lines = decoded(file.write(tmp_path), events_bytes_max=bytes_max)[2:]
    assert short(lines) == [
        "xa-prepare", "xa-prepare", "xa-prepare", "insert stock 1", "xa-rollback",
        *(f"insert item {100 + i}" for i in range(20)), "xa-commit",
    ]  # fmt: skip
    assert [line["xid"] for line in lines if "xid" in line] == [
        f"1:{name.encode().hex()}:" for name in ("good", "bad", "left", "bad", "good")
    ]
    assert {line["position"] for line in lines[5:]} == {f"bin.000001:{file.starts[-1]}"}
    assert lines[-1]["rows_known"] is True


def test_an_xa_group_from_before_the_files_is_said_to_be_unknown(tmp_path: Path) -> None:
    file = BinlogFile(mysql=True)
    file.prepared["early"] = []
    file.xa_commit("early")
    (line,) = decoded(file.write(tmp_path))
    assert (line["op"], line["rows_known"]) == ("xa-commit", False)


@both
@parts
def test_a_transaction_that_the_server_gave_up(tmp_path: Path, mysql: bool, bytes_max: int) -> None:
    first, second = started(mysql=mysql), BinlogFile(mysql=mysql, gtid=50)
    first.inserts("item", [1])
    first.begin()
    for i in range(20):
        first.insert("item", [100 + i])
    second.inserts("item", [2])
    second.begin()
    second.insert("item", [3])
    paths = first.write(tmp_path, "bin.000001"), second.write(tmp_path, "bin.000002")
    lines = decoded(*paths, events_bytes_max=bytes_max)[2:]
    assert short(lines) == ["insert item 1", "rollback", "insert item 2", "unfinished"]
    assert (lines[1]["reason"], lines[1]["position"]) == ("abandoned", f"bin.000001:{first.starts[3]}")
    assert lines[3]["position"] == f"bin.000002:{second.starts[1]}"


@parts
def test_statements_are_lines_where_they_stand_if_they_were_committed(tmp_path: Path, bytes_max: int) -> None:
    file = started()
    file.begin()
    file.insert("item", [1])
    file.query("INSERT INTO item SELECT 2")
    file.insert("item", [3])
    file.commit()
    file.begin()
    file.query("DELETE FROM item")
    file.rollback()
    file.announce(0x01)
    file.query("FLUSH TABLES")
    file.announce(0x29)
    file.query("CREATE VIEW v AS SELECT 1")
    lines = decoded(file.write(tmp_path), events_bytes_max=bytes_max)[2:]
    assert short(lines) == ["insert item 1", "statement", "insert item 3", "rollback", "statement", "ddl"]
    assert lines[1]["sql"] == "INSERT INTO item SELECT 2"
    assert lines[1]["position"] == lines[0]["position"] == lines[2]["position"]
    assert (lines[5]["changes"], lines[5]["sql"]) == ([], "CREATE VIEW v AS SELECT 1")


def test_every_ddl_changes_how_the_rows_after_it_are_read(tmp_path: Path) -> None:
    file = started()
    file.inserts("stock", [-1])
    file.ddl("ALTER TABLE stock CHANGE id num INT UNSIGNED")
    file.inserts("stock", [-1])
    file.ddl("ALTER TABLE stock DO SOMETHING NOBODY KNOWS")
    file.inserts("stock", [-1])
    lines = decoded(file.write(tmp_path))[2:]
    assert [line["after"] for line in lines if line["op"] == "insert"] == [
        {"id": -1}, {"num": 2**32 - 1}, {"@1": -1},
    ]  # fmt: skip
    assert [c["kind"] for line in lines if line["op"] == "ddl" for c in line["changes"]] == ["alter", "unknown"]


def test_columns_without_a_schema_are_numbered_and_their_strings_are_bytes(tmp_path: Path) -> None:
    file = BinlogFile()
    file.inserts("item", [-5])
    (line,) = decoded(file.write(tmp_path))
    assert line["after"] == {"@1": -5, "@2": {"base64": "bg=="}}


@parts
@pytest.mark.parametrize("read_bytes", [64, 1 << 20])
def test_everything_before_damage_is_written(tmp_path: Path, bytes_max: int, read_bytes: int) -> None:
    """A broken checksum in each event in turn: all transactions that ended before it, and the event in the error."""
    whole = started()
    for i in range(3):
        whole.begin()
        whole.insert("item", [10 * i])
        whole.insert("stock", [10 * i + 1])
        whole.commit()
    path = whole.write(tmp_path)
    lines = decoded(path, events_bytes_max=bytes_max)
    ends = [at for i, raw in enumerate(whole.events) if raw[4] in (16, 2) for at in [i]]
    at = 4 + len(whole.fde)
    for i, raw in enumerate(whole.events):
        whole.broken = {i}
        whole.write(tmp_path)
        with pytest.raises(BadEvent, match=rf"bin.000001: binlog event at offset {at} .*checksum") as caught:
            decoded(path, events_bytes_max=bytes_max, read_bytes=read_bytes)
        done = sum(end < i for end in ends)
        assert caught.value.lines == lines[: done if done <= 2 else 2 + 2 * (done - 2)]  # type: ignore[attr-defined]
        at += len(raw)


def test_rows_that_cannot_be_decoded_end_the_lines_at_their_transaction(tmp_path: Path) -> None:
    file = started()
    for i in range(4):
        file.begin()
        file.insert("stock", [i])
        file.insert("item", [i], name="ok" if i < 3 else "\udcff")
        file.commit()
    path = file.write(tmp_path)
    with pytest.raises(BadEvent, match=r"bin.000001.*shop.item, column name") as caught:
        decoded(path)
    found = short(caught.value.lines[2:])  # type: ignore[attr-defined]
    assert found == list(itertools.chain(*([f"insert stock {i}", f"insert item {i}"] for i in range(3))))


def test_a_file_that_is_cut_is_told_by_its_place(tmp_path: Path) -> None:
    file = started()
    file.inserts("item", [1])
    file.inserts("item", [2])
    path = tmp_path / "bin.000001"
    path.write_bytes(file.bytes()[:-5])
    with pytest.raises(
        PenstockError, match=f"ends in the middle of an event, at {file.at - len(file.events[-1])}"
    ) as caught:
        decoded(path)
    assert short(caught.value.lines[2:]) == ["insert item 1"]  # type: ignore[attr-defined]


def test_a_file_that_is_cut_anywhere_gives_what_is_before(tmp_path: Path) -> None:
    """From the magic number on; a file of a few bytes once ended with an IndexError."""
    file = started()
    file.inserts("item", [1])
    data = file.bytes()
    path = tmp_path / "bin.000001"
    path.write_bytes(data)
    whole = decoded(path)
    ends = {4 + len(file.fde)}
    for raw in file.events:
        ends.add(max(ends) + len(raw))
    for size in range(4, len(data)):
        path.write_bytes(data[:size])
        try:
            found = decoded(path)
            assert size in ends
        except SourceError as error:
            assert "ends in the middle of an event, at " in str(error) and str(path) in str(error)
            assert ("(" in error.message) == (size - max((end for end in ends if end < size), default=4) > 4)
            found = error.lines  # type: ignore[attr-defined]
        rest = [line for line in found if line["op"] != "unfinished"]
        assert rest == whole[: len(rest)]


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="not a regular file"):
        GivenFiles([tmp_path / "pipe"])


def test_what_is_no_binlog_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    good = started().write(tmp_path)
    other = tmp_path / "notes.gz"
    other.write_bytes(b"\x1f\x8b and so on")
    with pytest.raises(BadInput, match="not a binlog file") as caught:
        GivenFiles([good, other])
    assert caught.value.hint == "it is compressed: unpack it first"
    (tmp_path / "a").mkdir()
    with pytest.raises(BadInput, match=r"two of the files are called bin\.000001"):
        GivenFiles([good, started().write(tmp_path / "a")])


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    first, second = started(), BinlogFile(gtid=9)
    second.inserts("item", [1])
    paths = [first.write(tmp_path), second.write(tmp_path, "bin.000002")]
    told: list[int] = []
    decoded(*paths, read_bytes=100, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == sum(path.stat().st_size for path in paths)

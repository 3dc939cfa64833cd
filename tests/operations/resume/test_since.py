"""What happened to a parked table since: nothing of it is passed over when the table is resumed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from penstock.binlog.types import EventType
from penstock.capture.loop import Capture
from penstock.errors import BadInput
from penstock.log import Log
from penstock.operations.config.model import Places
from penstock.operations.resume import resume as module
from penstock.operations.resume.definition import Definition
from penstock.operations.resume.resume import resume_table
from penstock.operations.status import read_status
from tests.capture.streams import StreamSource
from tests.operations.resume.shop import CREATE, DEFINITION, PARK, Shop, capture, config_of, file_with, replayed
from tests.operations.resume.test_resume import parked_shop


def instead_of_rows(stream: Shop, sql: str) -> None:
    """What a session with binlog_format=STATEMENT logs."""
    stream.begin()
    stream.query(sql)
    stream.commit()


def test_statements_instead_of_rows_park_a_parked_table_again(tmp_path: Path) -> None:
    """Nobody would know otherwise that rows are missing: the definition brings the others back, and verify is content."""
    stream = parked_shop()
    instead_of_rows(stream, "INSERT INTO orders VALUES (50, 50, 50)")
    instead_of_rows(stream, "INSERT INTO orders VALUES (51, 51, 51)")  # one version for all of them
    stream.insert("orders", (3, 30, 300))
    lost = "INSERT INTO orders VALUES (?, ?, ?)"  # its values are of rows, and not for everybody
    capture(tmp_path, stream)
    (waiting,) = read_status(Places(state_dir=tmp_path)).parked
    assert waiting.statement == PARK and waiting.statements_after == 1 and waiting.rows_missing
    done = resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert done.plan.parked_again == lost and done.plan.rows == 1
    (waiting,) = read_status(Places(state_dir=tmp_path)).parked
    assert waiting.statement == lost and "instead of rows" in waiting.reason
    resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))  # whoever knows it goes on
    rows, replay = replayed(tmp_path)
    assert [row["id"] for row in rows["shop.orders"]] == [1, 2, 3] and not replay.parked


def test_a_statement_instead_of_rows_of_the_next_table_of_that_name(tmp_path: Path) -> None:
    stream = parked_shop("DROP TABLE orders", "CREATE TABLE orders (a int)")
    instead_of_rows(stream, "INSERT INTO orders VALUES (50)")
    stream.insert("orders", (5,), table_id=80)
    capture(tmp_path, stream)
    done = resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert done.plan.parked_again == "INSERT INTO orders VALUES (?)" and done.plan.rows == 1
    assert replayed(tmp_path)[0]["shop.orders"] == [{"id": 1, "v": 10}, {"id": 2, "v": 20, "w": 200}]


@pytest.mark.parametrize(
    ("sql", "missing"),
    [("CREATE TABLE copy SELECT * FROM items", True), ("CREATE TABLE copy (id int) FROBNICATE 1", False)],
)
def test_whether_rows_are_missing_is_said(tmp_path: Path, sql: str, missing: bool) -> None:
    stream = parked_shop(sql)
    stream.insert("copy", (1, 2, 3), table_id=80)
    capture(tmp_path, stream)
    found = {one.table: one.rows_missing for one in read_status(Places(state_dir=tmp_path)).parked}
    assert found == {"shop.orders": False, "shop.copy": missing}


def test_rows_of_the_next_table_that_do_not_fit(tmp_path: Path) -> None:
    """They need a resumption of their own, and do not hinder the first one."""
    stream = parked_shop("DROP TABLE orders", "CREATE TABLE orders (a int)")
    stream.insert("orders", (5, 6), table_id=81)  # a DDL that the binlog does not have
    capture(tmp_path, stream)
    done = resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert done.plan.rows == 1 and "2" in done.plan.parked_again
    assert replayed(tmp_path)[0]["shop.orders"] == [{"id": 1, "v": 10}, {"id": 2, "v": 20, "w": 200}]
    text = "CREATE TABLE orders (a int, b int)"
    assert resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, text)).plan.rows == 1
    assert replayed(tmp_path)[0]["shop.orders"][-1] == {"a": 5, "b": 6}


@pytest.mark.parametrize(
    "since",
    [
        ("DROP TABLE orders", "CREATE TABLE orders (w int, v int, id int)"),
        ("CREATE TABLE new (w int, v int, id int)", "DROP TABLE orders", "RENAME TABLE new TO orders"),
        ("DROP DATABASE shop", "CREATE DATABASE shop", "CREATE TABLE orders (w int, v int, id int)"),
        ("ALTER TABLE orders CHANGE id w int, CHANGE w id int",),
    ],
)
def test_the_server_has_another_table_of_that_name_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: tuple[str, ...]
) -> None:
    """It fits the rows that were held back, and would give their columns the wrong names."""
    capture(tmp_path, parked_shop(*since))
    now = Definition("CREATE TABLE orders (w int, v int, id int)", "a server", is_now=True)
    monkeypatch.setattr(module, "from_server", lambda _config, _parked: now)
    with pytest.raises(BadInput, match="changed again since it was parked") as error:
        resume_table(config_of(tmp_path), "shop.orders")
    assert "--schema FILE" in error.value.hint and set(replayed(tmp_path)[1].parked) == {"shop.orders"}
    resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert replayed(tmp_path)[0]["shop.orders"][1] == {"id": 2, "v": 20, "w": 200}


def test_the_server_is_believed_where_only_copies_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(tmp_path, parked_shop("CREATE TABLE twin LIKE orders"))
    now = Definition(DEFINITION, "a server", is_now=True)
    monkeypatch.setattr(module, "from_server", lambda _config, _parked: now)
    assert resume_table(config_of(tmp_path), "shop.orders").plan.rows == 1
    assert not read_status(Places(state_dir=tmp_path)).parked


def test_names_in_another_case(tmp_path: Path) -> None:
    """A server with lower_case_table_names=1 logs statements as they were written, and rows in lower case."""
    stream = parked_shop("CREATE TABLE Twin LIKE ORDERS", "RENAME TABLE Orders TO Archive")
    stream.insert("archive", (3, 30, 300), table_id=80)
    stream.ddl("ALTER TABLE ARCHIVE ADD x int")
    stream.insert("archive", (4, 40, 400, 4), table_id=81)
    source = StreamSource(stream)
    source.lower_case_table_names = 1
    log = Log.open(tmp_path / "log")
    assert Capture(log, source).run(until_now=True)
    log.close()
    done = resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert not done.plan.parked_again and done.plan.rows == 3
    assert replayed(tmp_path)[0]["shop.archive"] == [
        {"id": 3, "v": 30, "w": 300},
        {"id": 4, "v": 40, "w": 400, "x": 4},
    ]
    assert not read_status(Places(state_dir=tmp_path)).parked


@pytest.mark.parametrize("fits", [True, False])
def test_rows_of_an_xa_group_that_commits_after_the_resumption(tmp_path: Path, fits: bool) -> None:
    """What is prepared counts as held back: a definition that it does not fit would end every changefeed at its commit."""
    stream = Shop()
    stream.ddl(CREATE)
    stream.ddl(PARK)
    stream.xa_begin("x")
    columns = 3 if fits else 2
    identity, nulls = (70 + columns).to_bytes(6, "little"), b"\0"
    stream.add(
        EventType.TABLE_MAP, identity + b"\1\0\4shop\0\6orders\0" + bytes([columns]) + b"\3" * columns + b"\0\xff"
    )
    row = nulls + struct.pack(f"<{columns}i", *range(columns))
    stream.add(EventType.WRITE_ROWS_V1, identity + b"\1\0" + bytes([columns]) + b"\xff" + row)
    stream.xa_prepare("x")
    capture(tmp_path, stream)
    if not fits:
        with pytest.raises(BadInput, match="does not fit"):
            resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
        return
    resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert "shop.orders" not in replayed(tmp_path)[0]  # it is only prepared
    stream.xa_commit("x")
    capture(tmp_path, stream)
    assert replayed(tmp_path)[0]["shop.orders"] == [{"id": 0, "v": 1, "w": 2}]

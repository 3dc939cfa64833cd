"""A parked table goes on: what was held back is read, in order; nothing is changed by what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BadInput, Unavailable
from penstock.files import REAL_FILES
from penstock.log import LogReader
from penstock.operations.config.model import Places
from penstock.operations.resume.resume import resume_table
from penstock.operations.status import read_status
from penstock.spark.log_follower import LogFollower
from tests.operations.resume.shop import CREATE, DEFINITION, PARK, Shop, capture, config_of, file_with, replayed


def parked_shop(*after: str) -> Shop:
    stream = Shop()
    stream.ddl(CREATE)
    stream.ddl("CREATE TABLE items (id int primary key)")
    stream.insert("orders", (1, 10))
    stream.ddl(PARK)
    stream.insert("orders", (2, 20, 200))
    stream.insert("items", (7,), table_id=90)
    for sql in after:
        stream.ddl(sql)
    return stream


def end_of(state_dir: Path) -> str:
    reader = LogReader.open(state_dir / "log")
    try:
        return str(reader.end())
    finally:
        reader.close()


def test_what_was_held_back_is_read(tmp_path: Path) -> None:
    stream = parked_shop()
    capture(tmp_path, stream)
    rows, replay = replayed(tmp_path)
    assert rows == {"shop.orders": [{"id": 1, "v": 10}], "shop.items": [{"id": 7}]} and set(replay.parked) == {
        "shop.orders"
    }
    done = resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert (done.plan.rows, done.plan.statements, done.plan.parked_again, done.running) == (1, (), "", False)
    stream.ddl("ALTER TABLE orders ADD x int")
    stream.insert("orders", (3, 30, 300, 3000))
    capture(tmp_path, stream)  # goes on from the schema that was given
    rows, replay = replayed(tmp_path)
    assert rows["shop.orders"] == [
        {"id": 1, "v": 10},
        {"id": 2, "v": 20, "w": 200},
        {"id": 3, "v": 30, "w": 300, "x": 3000},
    ]
    assert not replay.parked


def test_statements_that_came_later_are_applied_in_order(tmp_path: Path) -> None:
    stream = parked_shop("ALTER TABLE orders ADD COLUMN x int FIRST")
    stream.insert("orders", (9, 3, 30, 300))
    stream.ddl("ALTER TABLE items ADD FOREIGN KEY (id) REFERENCES orders (id)")
    stream.ddl("TRUNCATE TABLE orders")
    stream.ddl("ALTER TABLE orders DROP COLUMN v, ENGINE=InnoDB")
    stream.insert("orders", (8, 4, 40))
    capture(tmp_path, stream)
    done = resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert len(done.plan.statements) == 3 and done.plan.rows == 3
    rows, replay = replayed(tmp_path)
    assert rows["shop.orders"][1:] == [
        {"id": 2, "v": 20, "w": 200},
        {"x": 9, "id": 3, "v": 30, "w": 300},
        {"x": 8, "id": 4, "w": 40},
    ]
    assert not replay.parked


def test_a_second_statement_that_nobody_understands_needs_a_resumption_of_its_own(tmp_path: Path) -> None:
    stream = parked_shop("ALTER TABLE orders ADD x int", "ALTER TABLE orders FROBNICATE y", "ALTER TABLE orders DROP x")
    stream.insert("orders", (3, 30, 300, 7))
    capture(tmp_path, stream)
    done = resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert done.plan.parked_again == "ALTER TABLE orders FROBNICATE y" and done.plan.rows == 1
    (waiting,) = read_status(Places(state_dir=tmp_path)).parked
    assert waiting.statement == "ALTER TABLE orders FROBNICATE y" and waiting.statements_after == 1
    again = DEFINITION.replace("`w` int(11)", "`w` int(11), x int, y int")
    done = resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, again))
    rows, replay = replayed(tmp_path)
    assert rows["shop.orders"][-1] == {"id": 3, "v": 30, "w": 300, "y": 7} and not replay.parked
    assert not read_status(Places(state_dir=tmp_path)).parked


def test_a_parked_table_that_is_dropped_and_made_again(tmp_path: Path) -> None:
    """Its rows from before the DROP are still held back, and the server cannot say any more what it was."""
    stream = parked_shop("DROP TABLE orders", "CREATE TABLE orders (a int)")
    stream.insert("orders", (5,), table_id=80)
    capture(tmp_path, stream)
    (waiting,) = read_status(Places(state_dir=tmp_path)).parked
    assert waiting.statement == PARK and waiting.command == "penstock resume shop.orders"
    with pytest.raises(BadInput, match="cannot be asked"):
        resume_table(config_of(tmp_path), "shop.orders")
    assert resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION)).plan.rows == 1
    rows, replay = replayed(tmp_path)
    assert rows["shop.orders"] == [{"id": 1, "v": 10}, {"id": 2, "v": 20, "w": 200}, {"a": 5}] and not replay.parked


def test_a_parked_table_that_is_renamed_and_copied(tmp_path: Path) -> None:
    stream = parked_shop("CREATE TABLE twin LIKE orders", "RENAME TABLE orders TO archive, twin TO orders")
    stream.insert("archive", (3, 30, 300), table_id=80)
    stream.insert("orders", (4, 40, 400), table_id=85)
    capture(tmp_path, stream)
    waiting = read_status(Places(state_dir=tmp_path)).parked
    assert {one.table for one in waiting} == {"shop.orders", "shop.twin", "shop.archive"}
    done = resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert done.plan.rows == 3
    rows, replay = replayed(tmp_path)
    assert rows["shop.archive"] == [{"id": 3, "v": 30, "w": 300}] and not replay.parked
    assert rows["shop.orders"][1:] == [{"id": 2, "v": 20, "w": 200}, {"id": 4, "v": 40, "w": 400}]
    assert not read_status(Places(state_dir=tmp_path)).parked


def test_two_parked_tables_go_on_one_by_one(tmp_path: Path) -> None:
    stream = parked_shop("ALTER TABLE items FROBNICATE")
    stream.insert("items", (8, 9), table_id=90)
    capture(tmp_path, stream)
    assert [one.table for one in read_status(Places(state_dir=tmp_path)).parked] == ["shop.orders", "shop.items"]
    resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    rows, replay = replayed(tmp_path)
    assert len(rows["shop.orders"]) == 2 and set(replay.parked) == {"shop.items"} and len(rows["shop.items"]) == 1
    resume_table(config_of(tmp_path), "shop.items", file_with(tmp_path, "create table shop.items (id int, b int)"))
    rows, replay = replayed(tmp_path)
    assert rows["shop.items"] == [{"id": 7}, {"id": 8, "b": 9}] and not replay.parked


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (CREATE, "3 columns|logs 3"),
        (DEFINITION.replace("`w` int(11)", "`w` varchar(20)"), "column w is varchar"),
        (DEFINITION.replace("`orders`", "items"), "defines shop.items"),
        ("CREATE TABLE orders (id int, v frob)", "not understood"),
        ("CREATE TABLE orders LIKE items", "not one CREATE TABLE|not understood"),
        ("DROP TABLE orders", "not one CREATE TABLE"),
        ("", "not one CREATE TABLE|not understood"),
        ("CREATE VIEW orders AS SELECT 1", "not one CREATE TABLE"),
    ],
)
def test_a_definition_that_does_not_fit_changes_nothing(tmp_path: Path, text: str, says: str) -> None:
    capture(tmp_path, parked_shop())
    before = end_of(tmp_path)
    with pytest.raises(BadInput, match=says) as error:
        resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, text))
    assert "nothing was changed" in error.value.hint
    assert end_of(tmp_path) == before and set(replayed(tmp_path)[1].parked) == {"shop.orders"}
    resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert not replayed(tmp_path)[1].parked


def test_what_cannot_be_resumed(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    with pytest.raises(BadInput, match="nothing was captured"):
        resume_table(config, "shop.orders", file_with(tmp_path, DEFINITION))
    capture(tmp_path, parked_shop())
    with pytest.raises(BadInput, match="is not parked") as error:
        resume_table(config, "shop.items", file_with(tmp_path, DEFINITION))
    assert "shop.orders" in error.value.hint
    with pytest.raises(BadInput, match="cannot be read"):
        resume_table(config, "shop.orders", tmp_path / "nowhere.sql")
    with REAL_FILES.lock(tmp_path / "lock"), pytest.raises(Unavailable):  # a run that does not answer yet
        resume_table(config, "shop.orders", file_with(tmp_path, DEFINITION))
    resume_table(config, "shop.orders", file_with(tmp_path, DEFINITION))
    with pytest.raises(BadInput, match="is not parked"):
        resume_table(config, "shop.orders", file_with(tmp_path, DEFINITION))


def test_a_reader_that_was_there_before_learns_that_it_is_out_of_date(tmp_path: Path) -> None:
    capture(tmp_path, parked_shop())
    reader = LogReader.open(tmp_path / "log")
    before = LogFollower(reader)
    while frames := before.more():
        assert not any(frame.resumes for frame in frames)
    resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, DEFINITION))
    assert any(frame.resumes for frame in before.more())
    after = LogFollower(reader)
    found = [frame for frames in iter(after.more, ()) for frame in frames]
    assert not any(frame.resumes for frame in found)
    assert not any(table.parked for frame in found for table in frame.schemas)
    late = LogFollower(reader, found[-1].position)  # what was parked is in force before its first frame
    assert not any(one.table.parked for one in late.in_force())
    reader.close()

"""A table that was parked and resumed reads as if its statement had been understood, whatever came after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.log import LogReader
from penstock.operations.resume.resume import resume_table
from penstock.operations.verify.log_replay import read_history
from penstock.schema.model import ChangeKind
from tests.operations.resume.shop import CREATE, PARK, Shop, capture, config_of, file_with, replayed

UNDERSTOOD = "ALTER TABLE orders ADD COLUMN w int"
DEFINITION = "CREATE TABLE orders (id int NOT NULL PRIMARY KEY, v int, w int)"
Step = str | tuple[Any, ...]  # a statement; or a table, its table id and a row


def shop(statement: str, steps: tuple[Step, ...]) -> Shop:
    stream = Shop()
    stream.ddl(CREATE)
    stream.ddl("CREATE TABLE items (id int primary key)")
    stream.insert("orders", (1, 10))
    stream.ddl(statement)
    stream.insert("orders", (2, 20, 200))
    for step in steps:
        if isinstance(step, str):
            stream.ddl(step)
        else:
            stream.insert(step[0], step[2:], table_id=step[1])
    return stream


def versions(state_dir: Path) -> list[tuple[Any, ...]]:
    """Everything that a version says but when it was made, in the order of the log. A statement that leaves a parked table as
    it is makes a version all the same, which says nothing new."""
    reader = LogReader.open(state_dir / "log")
    history = sorted(read_history(reader).schemas.items(), key=lambda item: (item[0], item[1].name))
    reader.close()
    found: list[tuple[Any, ...]] = []
    last: dict[str, Any] = {}
    for _, table in history:
        if table.kind is ChangeKind.NONE and last.get(table.name) == table.columns:
            continue
        last[table.name] = table.columns
        made_by = "the statement" if table.query in (PARK, UNDERSTOOD) else (table.ddl_type, table.query)
        found.append((table.name, made_by, table.columns, table.charset, table.other, table.reason))
    return found


@pytest.mark.parametrize(
    "steps",
    [
        ("RENAME TABLE orders TO archive", ("archive", 80, 3, 30, 300)),
        ("ALTER TABLE orders RENAME TO archive", ("archive", 80, 3, 30, 300)),
        ("ALTER TABLE orders ADD x int, RENAME TO archive", ("archive", 80, 3, 30, 300, 3000)),
        ("ALTER TABLE orders RENAME COLUMN v TO u", ("orders", 80, 3, 30, 300), "ALTER TABLE orders DROP u"),
        ("CREATE TABLE new LIKE orders", "RENAME TABLE orders TO old, new TO orders", ("orders", 85, 4, 40, 400)),
        ("CREATE TABLE new LIKE orders", "ALTER TABLE new ADD x int", ("new", 80, 3, 30, 300, 5), "DROP TABLE orders"),
        ("RENAME TABLE orders TO a", "RENAME TABLE a TO b", "RENAME TABLE b TO orders", ("orders", 80, 3, 30, 300)),
        ("RENAME TABLE orders TO t, items TO orders, t TO items", ("items", 80, 3, 30, 300), ("orders", 90, 9)),
        ("DROP TABLE orders", "CREATE TABLE orders (a int)", ("orders", 80, 5), "ALTER TABLE orders ADD b int"),
        ("DROP TABLE orders, items", "CREATE TABLE orders LIKE items"),
        ("TRUNCATE TABLE orders", ("orders", 80, 3, 30, 300), "ALTER TABLE orders MODIFY v bigint"),
        ("ALTER TABLE orders CONVERT TO CHARACTER SET latin1", "ALTER TABLE orders ADD t varchar(9)"),
        ("CREATE OR REPLACE TABLE orders LIKE items", ("orders", 80, 5)),
        ("CREATE TABLE items2 LIKE orders", "DROP TABLE items2", "CREATE TABLE items2 (q int)", ("items2", 80, 5)),
        ("DROP DATABASE shop", "CREATE DATABASE shop", "CREATE TABLE orders (z int)", ("orders", 80, 5)),
        ("CREATE INDEX i ON orders (v)", "ALTER TABLE orders ENGINE=InnoDB", "ANALYZE TABLE orders"),
        ("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (v)", ("orders", 80, 3, 30, 300)),
        ("CREATE TABLE part (id int primary key, v int, w int) PARTITION BY HASH (id) PARTITIONS 2",
         "ALTER TABLE part EXCHANGE PARTITION p0 WITH TABLE orders", ("orders", 80, 3, 30, 300)),
    ],
)  # fmt: skip
def test_whatever_came_after_it(tmp_path: Path, steps: tuple[Step, ...]) -> None:
    understood, resumed = tmp_path / "understood", tmp_path / "resumed"
    capture(understood, shop(UNDERSTOOD, steps))
    capture(resumed, shop(PARK, steps))
    done = resume_table(config_of(resumed), "shop.orders", file_with(tmp_path, DEFINITION))
    assert not done.plan.parked_again
    assert versions(resumed) == versions(understood)
    rows, replay = replayed(resumed)
    assert rows == replayed(understood)[0] and not replay.parked

"""One world for all tests here: a real MariaDB that did everything once, its log, a sink of each format, and its tables as
the server shows them at the end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.log import LogReader
from penstock.operations.verify.source_truth import select_chunks
from penstock.schema.model import TableSchema
from penstock.spark.tables.log import read_content
from penstock.spark.tables.rows import OWN, changes_schema, rows_of_batch
from tests.spark.tables.worlds import capture_files, deliver
from tests.support.components import missing
from tools.components import MissingComponent
from tools.components.mariadb import MariaDbServer

FORMATS = ("canal-json", "csv", "debezium-json", "parquet")

_TYPES = """CREATE TABLE types (id INT PRIMARY KEY, ti TINYINT, si SMALLINT UNSIGNED, mi MEDIUMINT, i INT UNSIGNED,
 bi BIGINT, bu BIGINT UNSIGNED, f FLOAT, d DOUBLE, dc DECIMAL(12,3), dl DECIMAL(50,10), b1 BIT(1), b9 BIT(9), b64 BIT(64),
 y YEAR, dt DATE, t0 DATETIME, t6 DATETIME(6), ts TIMESTAMP(3) NULL, tm TIME(2), c CHAR(5), v VARCHAR(40), tx TEXT,
 bn VARBINARY(10), bl BLOB, e ENUM('a','b,c'), s SET('x','y'), g POINT)"""
_VALUES = (
    "INSERT INTO types VALUES (1,-128,65535,-8388608,4294967295,-9223372036854775808,18446744073709551615,1.5,0.1,"
    "123456789.125,'1234567890123456789012345678901234567890.0123456789',b'1',b'101010101',b'1',2026,'2024-05-01',"
    "'2024-05-01 12:00:00','1999-12-31 23:59:59.999999','2024-05-01 10:00:00.123','-838:59:59.99','é','a\"\\\\\\n','text',"
    "x'00ff80',x'c3',2,3,ST_GeomFromText('POINT(1 2)'))",
    "INSERT INTO types (id) VALUES (2)",
    "INSERT INTO types (id, dt, t0, e, s, v) VALUES (3, '0000-00-00', '2024-05-00 00:00:00', 0, 0, '')",
    "UPDATE types SET v = 'changed', tm = '00:00:01' WHERE id = 2",
)
STATEMENTS = (
    "CREATE DATABASE shop",
    "USE shop",
    "SET sql_mode = ''",
    _TYPES,
    *_VALUES,
    # A key that changes, a row that goes, a column that comes, a name that changes, and a new table under the old name.
    "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20), total DECIMAL(10,2))",
    "INSERT INTO orders VALUES (1, 'one', 1.5), (2, NULL, NULL), (3, 'three', -3)",
    "UPDATE orders SET id = 10 WHERE id = 1",
    "DELETE FROM orders WHERE id = 3",
    "ALTER TABLE orders ADD COLUMN state ENUM('new','done') NOT NULL DEFAULT 'new', ADD COLUMN n INT NOT NULL",
    "INSERT INTO orders (id, state) VALUES (4, 'done')",
    "RENAME TABLE orders TO sold",
    "INSERT INTO sold (id, note) VALUES (5, 'new')",
    "ALTER TABLE sold MODIFY COLUMN n BIGINT NOT NULL, DROP COLUMN total",
    "UPDATE sold SET n = 1 WHERE id = 5",
    "CREATE TABLE orders (k VARCHAR(5) PRIMARY KEY)",
    "INSERT INTO orders VALUES ('a'), ('b')",
    # Names that are traded.
    "CREATE TABLE left_one (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE right_one (id INT PRIMARY KEY, v INT)",
    "INSERT INTO left_one VALUES (1, 1)",
    "INSERT INTO right_one VALUES (2, 2), (3, 3)",
    "RENAME TABLE left_one TO aside, right_one TO left_one, aside TO right_one",
    "INSERT INTO left_one VALUES (4, 4)",
    "DELETE FROM left_one WHERE id = 2",
    # No key: equal rows, as many as there are. A key that comes later, and another one after it.
    "CREATE TABLE keyless (a INT, b DOUBLE)",
    "INSERT INTO keyless VALUES (1, 0.5), (1, 0.5), (1, 0.5), (2, NULL)",
    "DELETE FROM keyless WHERE a = 1 LIMIT 1",
    "UPDATE keyless SET b = 7 WHERE a = 2",
    "CREATE TABLE rekeyed (a INT PRIMARY KEY, b INT)",
    "INSERT INTO rekeyed VALUES (1, 10), (2, 20)",
    "UPDATE rekeyed SET b = 30 WHERE a = 1",
    "ALTER TABLE rekeyed DROP PRIMARY KEY, ADD PRIMARY KEY (b)",
    "UPDATE rekeyed SET a = 9 WHERE b = 30",
    # Emptied, dropped and made anew.
    "CREATE TABLE emptied (id INT PRIMARY KEY)",
    "INSERT INTO emptied VALUES (1), (2)",
    "TRUNCATE TABLE emptied",
    "INSERT INTO emptied VALUES (3)",
    "CREATE TABLE remade (id INT PRIMARY KEY)",
    "INSERT INTO remade VALUES (1)",
    "DROP TABLE remade",
    "CREATE TABLE remade (id INT PRIMARY KEY)",
    "INSERT INTO remade VALUES (2)",
    # What cannot be told from changes.
    "CREATE TABLE renamed_column (id INT PRIMARY KEY, old INT)",
    "INSERT INTO renamed_column VALUES (1, 1)",
    "ALTER TABLE renamed_column CHANGE COLUMN old young INT",
    "CREATE TABLE gone (id INT PRIMARY KEY)",
    "INSERT INTO gone VALUES (1)",
    "DROP TABLE gone",
)
TABLES = ("types", "sold", "orders", "left_one", "right_one", "keyless", "rekeyed", "emptied", "remade")


@dataclass(frozen=True)
class World:
    """`truth`: the server's own rows, by table."""

    root: Path
    truth: dict[str, pa.Table]

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    def path(self, where: str) -> str:
        """Of the log, or of the sink of a format."""
        return str(self.root / where)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("tables")
    binlogs = root / "binlogs"
    binlogs.mkdir()
    (root / "state").mkdir(mode=0o700)
    try:
        server = MariaDbServer(root / "server").start()
    except MissingComponent as error:
        missing(str(error))
    try:
        connection = server.connect()
        with connection.cursor() as cursor:
            for statement in STATEMENTS:
                cursor.execute(statement)
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("SET time_zone = '+00:00'")
        for file in sorted(server.binlog_directory.glob("binlog.[0-9]*"))[:-1]:
            shutil.copy(file, binlogs)
        capture_files(root / "state", binlogs)
        reader = LogReader.open(root / "state" / "log")
        history = read_content(reader).history()
        reader.close()
        truth = {name: _selected(connection, history.newest(("shop", name))) for name in TABLES}
    finally:
        server.stop()
    for name in FORMATS:
        deliver(root / "state", root / name, name)
    yield World(root, truth)


def _selected(connection: object, table: TableSchema) -> pa.Table:
    chunks = [rows_of_batch(chunk) for chunk in select_chunks(connection, table)]  # type: ignore[arg-type]
    return pa.concat_tables([changes_schema(table).empty_table(), *chunks]).drop_columns(list(OWN))

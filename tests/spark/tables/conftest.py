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
# Statements after which rows that are there have values that no change tells: with the columns and the row before, by table.
UNTOLD = {
    "traded": ("a INT, b INT", "5, 6", "CHANGE a b INT, CHANGE b a INT"),
    "given": ("a INT, b INT", "5, 6", "RENAME COLUMN a TO b, RENAME COLUMN b TO a"),
    "computed": ("a INT", "5", "ADD m INT AS (a * 2) STORED"),
    "computed_later": ("a INT", "5", "ADD m INT AS (a * 2) VIRTUAL"),
    "computed_anew": ("a INT, m INT AS (a * 2) STORED", "5, DEFAULT", "MODIFY m INT AS (a * 3) STORED"),
    "dropped_and_added": ("a INT", "5", "DROP a, ADD a INT NOT NULL DEFAULT 3"),
    "counted": ("a INT", "5", "DROP PRIMARY KEY, ADD n INT AUTO_INCREMENT PRIMARY KEY"),
    "named_default": ("a INT", "5", "ADD u VARCHAR(99) DEFAULT CURRENT_USER"),
    "no_null": ("a INT", "NULL", "MODIFY a INT NOT NULL"),
    "no_sign": ("a INT", "-5", "MODIFY a INT UNSIGNED"),
    "no_sign_of_a_decimal": ("a DECIMAL(9,2)", "-5", "MODIFY a DECIMAL(9,2) UNSIGNED"),
    "cut": ("a VARCHAR(20)", "'0123456789'", "MODIFY a VARCHAR(3)"),
    "cut_number": ("a INT", "12345", "MODIFY a VARCHAR(3)"),
    "cut_bits": ("a BIT(9)", "300", "MODIFY a BIT(3)"),
    "trimmed": ("a VARCHAR(9)", "'a '", "MODIFY a CHAR(9)"),
    "filled": ("a VARBINARY(9)", "'ab'", "MODIFY a BINARY(4)"),
    "rounded": ("a DATETIME(6)", "'2020-01-01 00:00:00.999999'", "MODIFY a DATETIME(3)"),
    "rounded_time": ("a TIME(6)", "'10:00:00.999999'", "MODIFY a TIME"),
    "other_elements": ("a ENUM('a','b')", "'b'", "MODIFY a ENUM('a','c')"),
    "other_order": ("a SET('x','y')", "'x,y'", "MODIFY a SET('y','x')"),
    "other_charset": ("a VARCHAR(9) CHARACTER SET latin1", "'\u00e9'", "CONVERT TO CHARACTER SET ascii"),
}
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
    # Names that mean something elsewhere, with a key and without.
    "CREATE TABLE names (`.id` INT PRIMARY KEY, `[0]` INT, __n INT, __d INT, `a.b` INT, __proto__ INT, `n\nl` INT)",
    "INSERT INTO names VALUES (1,1,1,1,1,1,1), (2,2,2,2,2,2,2)",
    "UPDATE names SET __n = 3 WHERE __n = 1",
    "CREATE TABLE names_only (`.id` INT, `[0]` INT, __n INT, __d INT, c0 INT)",
    "INSERT INTO names_only VALUES (1,1,1,1,1), (2,2,2,2,2), (2,2,2,2,2)",
    "DELETE FROM names_only WHERE __n = 1",
    # Types that hold less, and all the same what is there.
    "CREATE TABLE narrowed (id INT PRIMARY KEY, v VARCHAR(20), n INT, e ENUM('a','b'), s SET('x','y'), d DATETIME(6), "
    "b VARBINARY(9), t TEXT, q BIT(9), l VARCHAR(9) CHARACTER SET utf8mb4, u VARCHAR(9) CHARACTER SET utf8mb4)",
    "INSERT INTO narrowed VALUES (2,'012',7,'b','x','2020-01-01 00:00:00.5','abc','\u00e9',3,'x','\u6f22')",
    "ALTER TABLE narrowed MODIFY v CHAR(3), MODIFY n TINYINT UNSIGNED NOT NULL, MODIFY e ENUM('z','b'), "
    "MODIFY s SET('y','x','q'), MODIFY d DATETIME(1), MODIFY b BINARY(3), MODIFY t VARCHAR(1), MODIFY q BIT(2)",
    "ALTER TABLE narrowed MODIFY u VARCHAR(5) CHARACTER SET utf8mb3",
    # What cannot be told from changes.
    *(
        statement
        for name, (columns, values, alteration) in UNTOLD.items()
        for statement in (
            f"CREATE TABLE {name} (id INT PRIMARY KEY, {columns})",
            f"INSERT INTO {name} VALUES (1, {values})",
            f"ALTER TABLE {name} {alteration}",
        )
    ),
    "SET SESSION binlog_row_image = MINIMAL",
    "CREATE TABLE not_whole (id INT PRIMARY KEY, a INT, b INT)",
    "INSERT INTO not_whole VALUES (1, 1, 1)",
    "UPDATE not_whole SET a = 2",
    "SET SESSION binlog_row_image = FULL",
    "CREATE TABLE renamed_column (id INT PRIMARY KEY, old INT)",
    "INSERT INTO renamed_column VALUES (1, 1)",
    "ALTER TABLE renamed_column CHANGE COLUMN old young INT",
    "CREATE TABLE gone (id INT PRIMARY KEY)",
    "INSERT INTO gone VALUES (1)",
    "DROP TABLE gone",
)
TABLES = (
    "types",
    "sold",
    "orders",
    "left_one",
    "right_one",
    "keyless",
    "rekeyed",
    "emptied",
    "remade",
    "names",
    "names_only",
    "narrowed",
)


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

"""Sequences of DDL on a real MariaDB: after each statement every table is what the server says it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.schema.ddl.generated import statements
from tests.schema.ddl.server import Judge
from tests.support import budget
from tools.components.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb

_NUMBERS = itertools.count()


@pytest.fixture
def judge(mariadb_server: MariaDbServer) -> Iterator[Judge]:
    judge = Judge(mariadb_server, f"ddl{next(_NUMBERS)}")
    yield judge
    judge.close()


def test_spellings_of_types(judge: Judge) -> None:
    judge.follow(
        """CREATE TABLE t (a INTEGER(5) UNSIGNED ZEROFILL, b BOOL, c DEC, d NUMERIC(5), e DOUBLE PRECISION, f REAL,
        g FLOAT(10), h FLOAT(30), i FLOAT(7,3), j BIT, k CHAR, l BINARY, m YEAR(4), n DATETIME(0), o SERIAL, p LONG,
        q LONG VARBINARY, r CHARACTER VARYING(5), s NATIONAL VARCHAR(9), t JSON, u POINT, v TEXT(10), w TEXT(100),
        x BLOB(70000), y CHAR(5) CHARSET binary, z TEXT CHARACTER SET binary)""",
        """CREATE TABLE u (a CHAR(3) ASCII, b TEXT COLLATE utf8mb4_bin, c NCHAR(3), d VARCHAR(9) BINARY, e CHAR(4) BYTE,
        f TEXT CHARACTER SET latin1 COLLATE latin1_bin, g ENUM('a','b') CHARSET latin1, h SET('x', 'it''s'), i INT1,
        j INT2, k INT3, l INT4, m INT8, n MIDDLEINT, o FIXED(4,1), p FIXED, q VARCHARACTER(8), r DOUBLE UNSIGNED, s INT UNSIGNED,
        t INET6, u UUID, v INET4, w TINYINT UNSIGNED, x DECIMAL(0), y TIMESTAMP(6) NULL, z TIME(3))""",
        "CREATE TABLE v (a VARCHAR(9), b TINYTEXT, c MEDIUMTEXT) DEFAULT CHARSET=utf8 COLLATE=utf8_bin",
        "CREATE TABLE w (a VARCHAR(9) COLLATE latin1_bin, b CHAR(3) UNICODE, c VARCHAR(9) COMPRESSED, d INT INVISIBLE)",
        "CREATE TABLE x (a INT NOT NULL DEFAULT 5 COMMENT 'a, (b) ''c''', b VARCHAR(9) DEFAULT 'it''s', c DATETIME DEFAULT NOW() "
        "ON UPDATE CURRENT_TIMESTAMP, d DECIMAL(5,2) DEFAULT -1.5, e BIT(3) DEFAULT b'101', f VARCHAR(40) DEFAULT (uuid()), "
        "g INT AS (a + 1) STORED, h INT GENERATED ALWAYS AS (a + 2) VIRTUAL, i BOOL DEFAULT TRUE, j CHAR(3) DEFAULT N'abc', "
        "k VARCHAR(5) DEFAULT X'4142', l DATE DEFAULT '2020-01-01', PRIMARY KEY (a, b), CHECK (a > 0))",
    )


def test_every_clause_of_alter(judge: Judge) -> None:
    judge.follow(
        "CREATE TABLE t (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20), n INT DEFAULT 3, b TEXT) CHARSET latin1",
        "ALTER TABLE t ADD w INT FIRST, ADD (x INT, y VARCHAR(5) NOT NULL, INDEX (x)), ADD COLUMN z BIGINT AFTER id",
        "ALTER TABLE t MODIFY v TEXT NOT NULL, MODIFY COLUMN w BIGINT UNSIGNED AFTER y",
        "ALTER TABLE t CHANGE n m DECIMAL(9,3) DEFAULT 1.5 FIRST, CHANGE COLUMN x x2 INT",
        "ALTER TABLE t RENAME COLUMN m TO n, RENAME COLUMN x2 TO m",
        "ALTER TABLE t ALTER COLUMN n SET DEFAULT 7, ALTER y SET DEFAULT 'q'",
        "ALTER TABLE t ALTER n DROP DEFAULT",
        "ALTER TABLE t MODIFY id INT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (z, id)",
        "ALTER TABLE t DROP PRIMARY KEY",
        "ALTER TABLE t ADD CONSTRAINT PRIMARY KEY (y)",
        "ALTER TABLE t DROP INDEX `PRIMARY`",
        "ALTER TABLE t ADD COLUMN k INT PRIMARY KEY",
        "DROP INDEX `PRIMARY` ON t",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE t DEFAULT CHARACTER SET latin1, ADD l1 VARCHAR(9)",
        "ALTER TABLE t COLLATE utf8mb4_bin, ADD l2 TINYTEXT, ORDER BY y, w",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb3",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, ADD l3 TINYTEXT",
        "ALTER TABLE t DROP COLUMN l1, DROP l2, ADD l1 INT, ADD COLUMN IF NOT EXISTS y INT, DROP COLUMN IF EXISTS nope",
        "ALTER TABLE t ADD n2 INT AFTER l1, DROP n, CHANGE COLUMN IF EXISTS nope x INT, MODIFY IF EXISTS nope INT",
        "ALTER TABLE t ENGINE=InnoDB COMMENT='x' ROW_FORMAT=DYNAMIC, ALGORITHM=COPY, ADD UNIQUE KEY u (y), FORCE",
        "ALTER TABLE t ADD PERIOD FOR p (d1, d2), ADD d1 DATE NOT NULL, ADD d2 DATE NOT NULL",
        "ALTER IGNORE TABLE t WAIT 5 RENAME TO t2, ADD q INT",
        "ALTER TABLE t2 RENAME t3",
        "ALTER TABLE t3 ALTER COLUMN q SET DEFAULT (1 + 2)",
    )


def test_two_clauses_for_one_column(judge: Judge) -> None:
    judge.follow(
        "CREATE TABLE t (a BIGINT, b BIGINT)",
        "ALTER TABLE t ALTER c DROP DEFAULT, ADD c INT8 DEFAULT 8",
        "ALTER TABLE t ADD (d INT8 DEFAULT 8, e INT), ALTER d SET DEFAULT 5",
        "ALTER TABLE t DROP c, ALTER c SET DEFAULT 4, ADD c INT AFTER a",
        "ALTER TABLE t ADD f BIGINT, MODIFY a INT, CHANGE a f DECIMAL(5,2)",
        "ALTER TABLE t DROP a, ADD a BIGINT FIRST, MODIFY a CHAR(3), ALTER a SET DEFAULT 'x'",
        "ALTER TABLE t ADD g BIGINT, MODIFY g CHAR(3) AFTER b",
        "ALTER TABLE t ALTER h DROP DEFAULT, CHANGE e h BIGINT DEFAULT 7 FIRST",
        "ALTER TABLE t MODIFY h INT AFTER b, ALTER h SET DEFAULT 4",
        "CREATE TABLE u (a INT PRIMARY KEY, c INT)",
        "ALTER TABLE u DROP a, RENAME COLUMN c TO a",
        "CREATE OR REPLACE TABLE u (b INT PRIMARY KEY, c INT)",
        "ALTER TABLE u DROP b, ADD b INT, ADD e2 INT",
        "ALTER TABLE u CHANGE b e INT NULL, ADD b INT FIRST",
        "ALTER TABLE u CHANGE b f INT FIRST, ADD b BIGINT",
    )


def test_keys_follow_their_columns(judge: Judge) -> None:
    judge.follow(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, w TIMESTAMP NULL)",
        "ALTER TABLE t CHANGE id number BIGINT",
        "ALTER TABLE t MODIFY number BIGINT UNSIGNED AUTO_INCREMENT",
        "ALTER TABLE t DROP number, ADD number BIGINT FIRST",
        "ALTER TABLE t DROP number, ADD id INT AUTO_INCREMENT PRIMARY KEY FIRST",
        "ALTER TABLE t DROP COLUMN id",
        "ALTER TABLE t ADD PRIMARY KEY IF NOT EXISTS (v)",
        "ALTER TABLE t ADD PRIMARY KEY IF NOT EXISTS (v, w)",
        "CREATE TABLE k (a INT, b INT, CONSTRAINT c PRIMARY KEY USING BTREE (b, a))",
        "ALTER TABLE k RENAME COLUMN a TO c, ADD a INT",
        "CREATE TABLE l (a INT KEY, b INT UNIQUE KEY, c INT REFERENCES k (b) ON DELETE SET NULL ON UPDATE NO ACTION)",
    )


def test_names(judge: Judge) -> None:
    a, b = judge.databases
    judge.follow(
        "CREATE TABLE t (id INT)",
        "CREATE TABLE u (name VARCHAR(9))",
        "RENAME TABLE t TO tmp, u TO t, tmp TO u",
        f"RENAME TABLE {a}.t TO {b}.t, u TO {b}.`we``ird 表`",
        f"CREATE TABLE t LIKE {b}.t",
        f"CREATE TABLE u (LIKE {b}.`we``ird 表`)",
        f"ALTER TABLE {b}.t RENAME {a}.v, ADD x INT",
        "CREATE OR REPLACE TABLE v (only INT)",
        "CREATE TABLE IF NOT EXISTS v (other INT)",
        "CREATE TABLE w SELECT 1 AS one, 'x' AS two, NOW() AS three",
        f"CREATE TABLE {b}.w2 (one INT PRIMARY KEY) CHARSET latin1 AS SELECT one, two FROM w",
        "CREATE TEMPORARY TABLE t (hidden INT)",
        "DROP TEMPORARY TABLE t",
        f"DROP TABLE IF EXISTS t, u, nope, {b}.w2",
        "TRUNCATE w",
        "CREATE VIEW vw AS SELECT * FROM w",
        "RENAME TABLE vw TO vw2",
        "DROP VIEW vw2",
        "CREATE TRIGGER tr BEFORE INSERT ON w FOR EACH ROW SET NEW.one = 1",
        "CREATE PROCEDURE p() BEGIN CREATE TABLE z (a INT); DROP TABLE z; ALTER TABLE w ADD z INT; END",
        "CALL p()",
        f"ALTER DATABASE {a} CHARACTER SET latin1",
        f"CREATE TABLE {a}.x (v VARCHAR(9))",
        f"CREATE TABLE {b}.x (v VARCHAR(9))",
        f"USE {b}",
        f"CREATE TABLE {a}.y (v VARCHAR(9))",
        f"ALTER TABLE {a}.y ADD w TEXT",
        "SET collation_server = 'greek_bin'",
        f"DROP DATABASE {a}",
        f"CREATE DATABASE {a}",
        f"CREATE TABLE {a}.t (v VARCHAR(5))",
        f"CREATE OR REPLACE DATABASE {b} COLLATE gbk_bin",
        f"CREATE TABLE {b}.t (v VARCHAR(5))",
    )


def test_partitions(judge: Judge) -> None:
    judge.follow(
        "CREATE TABLE t (id INT NOT NULL, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 "
        "VALUES LESS THAN MAXVALUE)",
        "INSERT INTO t VALUES (1, 1), (20, 2)",
        "CREATE TABLE u LIKE t",
        "ALTER TABLE u REMOVE PARTITIONING",
        "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u",
        "ALTER TABLE t REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES LESS THAN (30), PARTITION p2 VALUES LESS THAN MAXVALUE)",
        "ALTER TABLE t TRUNCATE PARTITION p1",
        "ALTER TABLE t DROP PARTITION p0, p1",
        "ALTER TABLE t ADD w INT NOT NULL PARTITION BY HASH (id) PARTITIONS 3",
        "ALTER TABLE t ADD PARTITION PARTITIONS 2",
        "ALTER TABLE t COALESCE PARTITION 1",
        "ALTER TABLE t REBUILD PARTITION p0, p1",
    )


def test_sessions(judge: Judge) -> None:
    judge.follow(
        "SET sql_mode = 'ANSI_QUOTES'",
        """CREATE TABLE "t" ("id" INT PRIMARY KEY, "it's" VARCHAR(9) DEFAULT '"x"')""",
        """ALTER TABLE "t" DROP "it's", ADD "or""d" INT""",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "ALTER TABLE t ADD w VARCHAR(9) DEFAULT 'C:\\', ADD x INT COMMENT 'a\\'",
        "CREATE PROCEDURE p() SELECT 'C:\\'",
        "SET sql_mode = 'REAL_AS_FLOAT'",
        "CREATE TABLE r (a REAL, b DATE, c TIMESTAMP)",
        "SET sql_mode = 'ORACLE'",
        "CREATE TABLE o (a DATE, b NUMBER, c NUMBER(5), d VARCHAR2(8), e RAW(4), f CLOB)",
        "SET sql_mode = 'MAXDB'",
        "CREATE TABLE m (a TIMESTAMP, b DATE)",
        "SET sql_mode = DEFAULT",
        "SET explicit_defaults_for_timestamp = 0",
        "CREATE TABLE ts (a INT, b TIMESTAMP NULL)",
        "SET explicit_defaults_for_timestamp = 1",
        "CREATE TABLE ts1 (a TIMESTAMP, b TIMESTAMP NOT NULL DEFAULT '2020-01-01 00:00:00')",
        "SET NAMES latin1",
        "CREATE TABLE plain (a VARCHAR(9) DEFAULT 'x')",
        "SET NAMES utf8mb4",
        "CREATE TABLE /*!50000 versioned */ (a INT /*M!100100 , b INT */ /*!99999 , c INT */) /*!50100 PARTITION BY HASH (a) */",
        "/*!40101 ALTER TABLE versioned ADD d INT */",
        "-- a comment\nALTER TABLE versioned /* another */ DROP b # and more",
    )


def test_a_server_that_ignores_the_case_of_names(tmp_path: Path) -> None:
    with MariaDbServer(tmp_path, options=["--lower-case-table-names=1"]) as server:
        judge = Judge(server, "names", lower_case_table_names=1)
        judge.follow(
            "CREATE TABLE Orders (id INT PRIMARY KEY)",
            "ALTER TABLE ORDERS ADD Note VARCHAR(9), ADD n INT AFTER ID",
            "RENAME TABLE orders TO NAMES_B.Archive",
            "CREATE TABLE Again LIKE Names_B.ARCHIVE",
            "ALTER TABLE again RENAME Orders, DROP NOTE",
            "CREATE TABLE IF NOT EXISTS ORDERS (other INT)",
            "DROP TABLE Orders",
            "DROP DATABASE Names_B",
        )
        judge.close()


@settings(max_examples=budget.scaled(24), suppress_health_check=list(HealthCheck), phases=[Phase.reuse, Phase.generate])
@given(st.data())  # not shrunk: that takes minutes, and the last statement of a sequence says it all
def test_generated_sequences(mariadb_server: MariaDbServer, data: st.DataObject) -> None:
    judge = Judge(mariadb_server, f"gen{next(_NUMBERS)}")
    try:
        for _ in range(25):
            judge.try_to(data.draw(statements(judge)))
    finally:
        judge.close()

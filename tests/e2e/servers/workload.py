"""What applications do to a server of either family, at random and without an end: rows of many kinds, transactions of every
outcome, changes of tables, and things in databases that nobody follows.

Each worker has tables of its own, so that no worker waits for another. Nobody keeps count of what should be there: the
server's tables are the truth, also after it was killed.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pymysql

from tools.components.database import DatabaseServer

DATABASE = "wl"
ELSEWHERE = "elsewhere"  # is not followed
SKIPPED = "skipped"  # tables of DATABASE with this prefix are excluded
STEPS_FAST = 500  # of a worker, before it slows down
_LOST = (0, 1053, 1927, 2003, 2006, 2013)  # the server is gone: come back later
_PASSING = (
    1205,
    1213,
    1399,
    1397,
    1614,
    1613,
    1402,
    1062,
    3572,
)  # lock waits, deadlocks, XA groups that are gone, keys in use
_SESSION = "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1, time_zone = '+00:00'"

IMAGES = ("FULL", "MINIMAL", "NOBLOB")

Cursor = Any
Step = Callable[["Worker", Cursor], None]


def create(server: DatabaseServer, workers: int) -> None:
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        for database in (DATABASE, ELSEWHERE):
            cursor.execute(f"DROP DATABASE IF EXISTS {database}")
            cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute(f"CREATE TABLE {ELSEWHERE}.t (a int, b varchar(100))")
        for k in range(workers):
            for sql in (_rich(f"rich{k}"), *_TABLES):
                cursor.execute(sql.replace("$", str(k)))


def create_follower(server: DatabaseServer) -> dict[str, str]:
    """Who follows the server, with no more rights than that needs. MySQL gets its password without TLS. Returns the user's
    settings."""
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        plugin = "" if server.kind == "mariadb" else "WITH mysql_native_password "
        cursor.execute(f"CREATE USER capture@'%' IDENTIFIED {plugin}BY 'secret'")
        cursor.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO capture@'%'")
    return {"user": "capture", "password": "secret"}


def _rich(name: str) -> str:
    return (
        f"CREATE TABLE {name} (id int unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, n bigint unsigned, name varchar(60), "
        "l varchar(30) CHARACTER SET latin1, price decimal(20,6), at datetime(6), d date, t time(3), ts timestamp(3) NULL, "
        "e enum('new','paid','gone'), s set('a','b','c'), f double, b bit(9), y year, doc json, raw blob, note text)"
    )


_TABLES = (
    "CREATE TABLE nopk$ (a int, b varchar(20))",
    "CREATE TABLE my$ (a int NOT NULL AUTO_INCREMENT PRIMARY KEY, b varchar(20)) ENGINE=MyISAM",
    "CREATE TABLE xa$ (a bigint PRIMARY KEY, b varchar(50))",
    "CREATE TABLE part$ (id int PRIMARY KEY, v varchar(20)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000), "
    "PARTITION p1 VALUES LESS THAN (100000), PARTITION p2 VALUES LESS THAN MAXVALUE)",
    "CREATE TABLE exchange$ (id int PRIMARY KEY, v varchar(20))",
    "CREATE TABLE big$ (id int NOT NULL AUTO_INCREMENT PRIMARY KEY, v mediumtext)",
    f"CREATE TABLE {SKIPPED}$ (a int PRIMARY KEY, b varchar(20))",
)


class Workload:
    """Workers on one server until they are stopped. `server` may be another one later: a failover. `images` may change, too:
    those of rows that are being loaded must be full."""

    def __init__(
        self,
        server: DatabaseServer,
        seed: int,
        workers: int,
        pause_seconds: float,
        *,
        images: tuple[str, ...] = IMAGES,
        steps_fast: int = STEPS_FAST,
    ) -> None:
        self.server = server
        self.steps_fast = steps_fast
        self.images = images
        self.fragile = threading.RLock()  # held while a crash of the server would leave it inconsistent with its binlog
        self.pause_seconds = pause_seconds
        self._running = threading.Event()
        self._running.set()
        self._stop = threading.Event()
        self.workers = [Worker(self, k, random.Random(seed * 1000 + k)) for k in range(workers)]

    def fill(self, rows: int) -> None:
        """Rows that are there before anybody looks at the binlog, in every table that has a primary key."""
        with contextlib.closing(self.server.connect(DATABASE)) as connection, connection.cursor() as cursor:
            for worker in self.workers:
                worker.fill(cursor, rows)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=worker.work, args=(self._stop,)) for worker in self.workers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._running.set()
            for thread in threads:
                thread.join()
            for worker in self.workers:
                if worker.error is not None:
                    raise AssertionError(f"worker {worker.number} failed at {worker.last!r}") from worker.error

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Between the steps of every worker."""
        self._running.clear()
        for worker in self.workers:
            worker.resting.wait()
        try:
            yield
        finally:
            self._running.set()

    def rest(self) -> bool:
        return not self._running.is_set()

    def wait(self) -> None:
        self._running.wait()


class Worker:
    def __init__(self, load: Workload, number: int, chance: random.Random) -> None:
        self.load = load
        self.number = number
        self.chance = chance
        self.steps = 0
        self.last = ""
        self.error: BaseException | None = None
        self.resting = threading.Event()
        self.groups: list[str] = []  # XA groups that are prepared
        self.columns = 0  # added to the table so far
        self.counter = number * 1_000_000
        self._cut_off = False  # a step did not come to its end: the server was killed, or a lock was not to be had

    @property
    def kind(self) -> str:
        return self.load.server.kind

    def work(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                try:
                    with contextlib.closing(self._connect()) as connection, connection.cursor() as cursor:
                        self._steps(cursor, stop)
                except pymysql.err.MySQLError as error:
                    if error.args[0] not in _LOST:
                        raise
                    time.sleep(0.05)
        except BaseException as error:
            self.error = error
        finally:
            self.resting.set()

    def _connect(self) -> Any:
        connection = self.load.server.connect(DATABASE)
        with connection.cursor() as cursor:
            cursor.execute(_SESSION)
        return connection

    def _steps(self, cursor: Cursor, stop: threading.Event) -> None:
        while not stop.is_set():
            if self.load.rest():
                self.resting.set()
                self.load.wait()
                self.resting.clear()
                return  # with a new connection, perhaps to another server
            step = self.chance.choices(_STEPS, _WEIGHTS)[0]
            self.last = step.__name__
            try:
                if self._cut_off:
                    _mend_names(self, cursor)
                self._cut_off = True
                step(self, cursor)
                self._cut_off = False
            except pymysql.err.MySQLError as error:
                if error.args[0] not in _PASSING:
                    raise
                self._give_up(cursor)
            self.steps += 1
            # On a busy machine all takes longer, and what there is to compare must not grow with it.
            stop.wait(self.load.pause_seconds if self.steps < self.load.steps_fast else 10 * self.load.pause_seconds)

    @staticmethod
    def _give_up(cursor: Cursor) -> None:
        for sql in ("ROLLBACK", "UNLOCK TABLES"):
            with contextlib.suppress(pymysql.err.MySQLError):
                cursor.execute(sql)
        _new_session(cursor)

    def next(self) -> int:
        self.counter += 1
        return self.counter

    def fill(self, cursor: Cursor, rows: int) -> None:
        k = self.number
        self.insert(cursor, rows)
        cursor.executemany(f"INSERT INTO xa{k} VALUES (%s, 'there')", [(self.next(),) for _ in range(rows)])
        cursor.executemany(f"INSERT INTO my{k} (b) VALUES (%s)", [("there",)] * (rows // 4))
        cursor.executemany(f"INSERT INTO part{k} VALUES (%s, 'there')", [(3 * n,) for n in range(rows)])
        cursor.executemany(f"INSERT INTO exchange{k} VALUES (%s, 'there')", [(5 * n,) for n in range(rows // 8)])
        cursor.execute(f"INSERT INTO big{k} (v) VALUES (REPEAT('b', 200000)), (REPEAT('c', 100))")

    # -- rows ------------------------------------------------------------------------------------------------------

    def insert(self, cursor: Cursor, count: int) -> None:
        pick = self.chance
        rows = [
            (
                pick.randrange(2**64), f"näme 😀 {self.next()}", pick.choice((None, "", "Zoë")),
                pick.choice((None, "-12345678901234.567891", "0", "99.5")),
                pick.choice((None, "2026-11-17 12:34:56.789012", "1001-01-01 00:00:00")),
                pick.choice((None, "2024-02-29", "9999-12-31")), pick.choice((None, "-838:59:58.999", "00:00:00.001")),
                pick.choice((None, "2026-11-17 01:02:03.456", "1971-01-01 00:00:01")), pick.choice((None, "new", "gone")),
                pick.choice((None, "", "a,c", "b")), pick.random() * 1e12, pick.randrange(512), pick.choice((None, 2026, 1999)),
                pick.choice((None, '{"k": [1, "zwei", null]}', "[]")), bytes(pick.randrange(256) for _ in range(9)),
                "x" * pick.choice((0, 10, 900)),
            )
            for _ in range(count)
        ]  # fmt: skip
        cursor.executemany(
            f"INSERT INTO rich{self.number} (n, name, l, price, at, d, t, ts, e, s, f, b, y, doc, raw, note) VALUES (%s, %s, "
            "%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, _binary %s, %s)",
            rows,
        )

    def change(self, cursor: Cursor) -> None:
        k, pick = self.number, self.chance
        cursor.execute(
            f"UPDATE rich{k} SET price = price + 1, note = %s WHERE id %% 7 = {pick.randrange(7)} LIMIT 20", ("y",)
        )
        cursor.execute(f"DELETE FROM rich{k} WHERE id % 5 = {pick.randrange(5)} ORDER BY id LIMIT 8")

    def image(self, cursor: Cursor) -> None:
        cursor.execute(f"SET SESSION binlog_row_image = '{self.chance.choice(self.load.images)}'")


def _new_session(cursor: Cursor) -> None:
    cursor.connection.close()
    cursor.connection.connect()
    cursor.execute(_SESSION)


def _rows(self: Worker, cursor: Cursor) -> None:
    self.image(cursor)
    self.insert(cursor, self.chance.choice((1, 1, 4, 30)))
    self.change(cursor)


def _transaction(self: Worker, cursor: Cursor) -> None:
    k = self.number
    self.image(cursor)
    cursor.execute("BEGIN")
    self.insert(cursor, 5)
    cursor.execute(f"INSERT INTO nopk{k} VALUES (%s, 'n'), (%s, NULL)", (self.next(), self.next()))
    self.change(cursor)
    cursor.execute(f"UPDATE nopk{k} SET b = 'm' WHERE a %% 3 = %s LIMIT 2", (self.chance.randrange(3),))
    cursor.execute(f"DELETE FROM nopk{k} WHERE a %% 4 = %s LIMIT 1", (self.chance.randrange(4),))
    cursor.execute(f"INSERT INTO {SKIPPED}{k} VALUES (%s, 's')", (self.next(),))
    cursor.execute(self.chance.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))


def _keys(self: Worker, cursor: Cursor) -> None:
    """A key that changes, REPLACE, and INSERT that becomes an UPDATE."""
    k, a = self.number, self.next()
    self.image(cursor)
    cursor.execute(f"INSERT INTO xa{k} VALUES (%s, 'a')", (a,))
    cursor.execute(f"UPDATE xa{k} SET a = %s WHERE a = %s", (self.next(), a))
    cursor.execute(f"REPLACE INTO xa{k} VALUES (%s, 'r')", (self.counter,))
    cursor.execute(f"INSERT INTO xa{k} VALUES (%s, 'd') ON DUPLICATE KEY UPDATE b = CONCAT(b, '+')", (self.counter,))


def _empty(self: Worker, cursor: Cursor) -> None:
    cursor.execute("BEGIN")
    cursor.execute(f"UPDATE rich{self.number} SET note = 'z' WHERE id = 0")
    cursor.execute("COMMIT")
    cursor.execute("FLUSH TABLES")


def _savepoints(self: Worker, cursor: Cursor) -> None:
    k = self.number
    with self.load.fragile:
        cursor.execute("BEGIN")
        cursor.execute(f"INSERT INTO xa{k} VALUES (%s, 'before')", (self.next(),))
        cursor.execute("SAVEPOINT s1")
        if self.kind == "mariadb":
            cursor.execute(f"INSERT INTO my{k} (b) VALUES ('inside')")
        cursor.execute(f"INSERT INTO xa{k} VALUES (%s, 'undone')", (self.next(),))
        cursor.execute("ROLLBACK TO SAVEPOINT s1")
        cursor.execute(f"INSERT INTO xa{k} VALUES (%s, 'after')", (self.next(),))
        cursor.execute(self.chance.choice(("COMMIT", "ROLLBACK")))


def _myisam(self: Worker, cursor: Cursor) -> None:
    k = self.number
    with self.load.fragile:
        cursor.execute(f"INSERT INTO my{k} (b) VALUES ('one'), ('two')")
        cursor.execute(f"UPDATE my{k} SET b = 'three' WHERE a % 3 = 0 LIMIT 3")
        cursor.execute(f"DELETE FROM my{k} WHERE a % 5 = 0 LIMIT 2")


def _large(self: Worker, cursor: Cursor) -> None:
    """A transaction that does not fit into an entry of the log: those of a forked capture are small."""
    k = self.number
    cursor.execute("BEGIN")
    for _ in range(self.chance.choice((2, 10, 20))):
        cursor.execute(f"INSERT INTO big{k} (v) VALUES (REPEAT('x', 50000)), (REPEAT('y', 100))")
    cursor.execute(f"DELETE FROM big{k}")
    cursor.execute(f"INSERT INTO big{k} (v) VALUES ('what is left')")
    cursor.execute(self.chance.choice(("COMMIT", "COMMIT", "ROLLBACK")))


# -- XA ------------------------------------------------------------------------------------------------------------


def _xa(self: Worker, cursor: Cursor) -> None:
    k, group = self.number, f"'g{self.number}','{self.next()}',9"
    outcome = self.chance.choice(("commit", "roll back", "one phase", "leave", "leave"))
    with self.load.fragile:
        cursor.execute(f"XA START {group}")
        cursor.execute(f"INSERT INTO xa{k} VALUES (%s, %s)", (self.next(), outcome))
        if self.chance.random() < 0.2:
            cursor.execute(f"INSERT INTO big{k} (v) VALUES (REPEAT('x', 400000)), (REPEAT('x', 300000))")
        cursor.execute(f"XA END {group}")
        if outcome == "one phase":
            cursor.execute(f"XA COMMIT {group} ONE PHASE")
            return
        cursor.execute(f"XA PREPARE {group}")
        if outcome == "commit":
            cursor.execute(f"XA COMMIT {group}")
        elif outcome == "roll back":
            cursor.execute(f"XA ROLLBACK {group}")
        else:
            self.groups.append(group)
            _new_session(cursor)  # which has to end it


def _xa_ends(self: Worker, cursor: Cursor) -> None:
    if len(self.groups) > 1:  # one stays open
        group = self.groups.pop(self.chance.randrange(len(self.groups)))
        with self.load.fragile:
            cursor.execute(f"XA {self.chance.choice(('COMMIT', 'ROLLBACK'))} {group}")


# -- changes of tables ---------------------------------------------------------------------------------------------


def _alter(self: Worker, cursor: Cursor) -> None:
    k = self.number
    self.columns += 1
    added = f"c{self.columns}"
    for sql in self.chance.choice(
        (
            (f"ALTER TABLE rich{k} ADD COLUMN {added} int DEFAULT 7 AFTER name", f"ALTER TABLE rich{k} DROP COLUMN {added}"),
            (
                f"ALTER TABLE rich{k} ADD {added} varchar(10) FIRST",
                f"UPDATE rich{k} SET {added} = 'q' LIMIT 3",
                f"ALTER TABLE rich{k} MODIFY {added} varchar(300) CHARACTER SET latin1",
                f"UPDATE rich{k} SET {added} = REPEAT('w', 280) LIMIT 3",
                f"ALTER TABLE rich{k} CHANGE {added} {added}_renamed text, ADD INDEX (n)",
                f"UPDATE rich{k} SET {added}_renamed = 'r' LIMIT 3",
                f"ALTER TABLE rich{k} DROP COLUMN {added}_renamed, DROP INDEX n",
            ),
            (f"ALTER TABLE xa{k} RENAME TO moved{k}", f"INSERT INTO moved{k} VALUES ({self.next()}, 'm')", f"RENAME TABLE moved{k} TO xa{k}"),
        )
    ):  # fmt: skip
        if " RENAME TO " in sql or sql.startswith("RENAME "):
            _rename(self, cursor, sql)
        else:
            cursor.execute(sql)


def _rename(self: Worker, cursor: Cursor, sql: str) -> None:
    """MariaDB, killed between a RENAME's place in the binlog and its end, takes the RENAME back as it starts, and leaves it in
    the binlog: no replica can be right then."""
    with self.load.fragile:
        cursor.execute(sql)


def _mend_names(self: Worker, cursor: Cursor) -> None:
    """A step that was cut off between two renames left its table under the other name."""
    cursor.execute(f"SHOW TABLES LIKE 'moved{self.number}'")
    if cursor.fetchall():
        _rename(self, cursor, f"RENAME TABLE moved{self.number} TO xa{self.number}")


def _ghost(self: Worker, cursor: Cursor) -> None:
    """As gh-ost: a table beside it is filled from the binlog, and both change names at once. What one that was cut off left
    is removed first, as gh-ost does when it is told to."""
    name = f"rich{self.number}"
    cursor.execute(f"DROP TABLE IF EXISTS _{name}_gho, _{name}_del")
    cursor.execute(f"CREATE /* gh-ost */ TABLE {DATABASE}._{name}_gho LIKE {DATABASE}.{name}")
    cursor.execute(f"ALTER /* gh-ost */ TABLE `{DATABASE}`.`_{name}_gho` MODIFY name varchar(61), ENGINE=InnoDB")
    cursor.execute(f"INSERT /* gh-ost */ IGNORE INTO _{name}_gho SELECT * FROM {name}")
    _rename(self, cursor, f"RENAME /* gh-ost */ TABLE `{name}` TO `_{name}_del`, `_{name}_gho` TO `{name}`")
    self.insert(cursor, 2)
    cursor.execute(f"DROP /* gh-ost */ TABLE IF EXISTS `{DATABASE}`.`_{name}_del`")


def _pt_osc(self: Worker, cursor: Cursor) -> None:
    """As pt-online-schema-change: triggers fill the table beside it."""
    name = f"rich{self.number}"
    cursor.execute(f"DROP TABLE IF EXISTS _{name}_new, _{name}_old")
    cursor.execute(f"DROP TRIGGER IF EXISTS pt_osc_{name}_ins")
    cursor.execute(f"CREATE TABLE `{DATABASE}`.`_{name}_new` LIKE {name}")
    cursor.execute(f"ALTER TABLE `{DATABASE}`.`_{name}_new` MODIFY note mediumtext")
    cursor.execute(
        f"CREATE TRIGGER pt_osc_{name}_ins AFTER INSERT ON {name} FOR EACH ROW REPLACE INTO _{name}_new (id, name) VALUES "
        "(NEW.id, NEW.name)"
    )
    try:
        self.insert(cursor, 3)
        cursor.execute(f"REPLACE INTO _{name}_new SELECT * FROM {name}")
    finally:
        cursor.execute(f"DROP TRIGGER IF EXISTS pt_osc_{name}_ins")
    _rename(self, cursor, f"RENAME TABLE {name} TO _{name}_old, _{name}_new TO {name}")
    cursor.execute(f"DROP TABLE IF EXISTS `_{name}_old`")


def _partitions(self: Worker, cursor: Cursor) -> None:
    k = self.number
    low, high = self.chance.randrange(1000), self.chance.randrange(1000, 100000)
    cursor.execute(f"REPLACE INTO part{k} VALUES (%s, 'low'), (%s, 'high')", (low, high))
    cursor.execute(f"REPLACE INTO exchange{k} VALUES (%s, 'swapped')", (self.chance.randrange(1000),))
    sql = self.chance.choice(
        (
            f"ALTER TABLE part{k} EXCHANGE PARTITION p0 WITH TABLE exchange{k}",
            f"ALTER TABLE part{k} TRUNCATE PARTITION p1",
            f"TRUNCATE TABLE exchange{k}",
        )
    )
    cursor.execute(sql)
    cursor.execute(f"UPDATE part{k} SET v = 'later' WHERE id % 2 = 0")


def _create(self: Worker, cursor: Cursor) -> None:
    k, n = self.number, self.next()
    for old in self.chance.sample(range(1, 4), 2):
        cursor.execute(f"DROP TABLE IF EXISTS copy{k}_{old}")
    which = self.chance.randrange(1, 4)
    cursor.execute(f"CREATE TABLE IF NOT EXISTS copy{k}_{which} LIKE xa{k}")
    cursor.execute(f"INSERT INTO copy{k}_{which} VALUES ({n}, 'like')")
    if self.kind == "mariadb":  # MySQL 8.0.12 refuses it with GTIDs
        cursor.execute(f"CREATE OR REPLACE TABLE selected{k} AS SELECT id, name, price FROM rich{k} LIMIT 20")
        cursor.execute(f"UPDATE selected{k} SET name = 'chosen' LIMIT 2")


def _elsewhere(self: Worker, cursor: Cursor) -> None:
    """What happens in databases that are not followed never ends a flow."""
    for sql in self.chance.choice(
        (
            ("SET SESSION binlog_format = 'STATEMENT'", f"INSERT INTO {ELSEWHERE}.t VALUES (1, 'statement')", "SET SESSION binlog_format = 'ROW'"),
            (f"CREATE OR REPLACE VIEW {ELSEWHERE}.v AS SELECT 1 AS a", f"ALTER TABLE {ELSEWHERE}.t COMMENT 'c', FORCE"),
            (f"INSERT INTO {ELSEWHERE}.t VALUES (2, 'row')", f"DELETE FROM {ELSEWHERE}.t LIMIT 2", "ANALYZE TABLE elsewhere.t"),
            (f"CREATE TEMPORARY TABLE {ELSEWHERE}.temp (a int)", f"INSERT INTO {ELSEWHERE}.temp VALUES (1)", f"DROP TEMPORARY TABLE {ELSEWHERE}.temp"),
        )
    ):  # fmt: skip
        cursor.execute(sql)


def _server(self: Worker, cursor: Cursor) -> None:
    cursor.execute("FLUSH BINARY LOGS")
    if self.kind == "mariadb":
        cursor.execute(f"SET GLOBAL log_bin_compress = {self.chance.choice(('ON', 'OFF'))}")
        cursor.execute("SET GLOBAL log_bin_compress_min_len = 20")


_CHOICES: dict[Step, int] = {
    _rows: 30, _transaction: 25, _keys: 8, _empty: 3, _savepoints: 5, _myisam: 5, _large: 3, _xa: 8, _xa_ends: 6, _alter: 4,
    _ghost: 2, _pt_osc: 2, _partitions: 4, _create: 4, _elsewhere: 4, _server: 2,
}  # fmt: skip
_STEPS = list(_CHOICES)
_WEIGHTS = list(_CHOICES.values())

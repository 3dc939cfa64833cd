"""A load on a real MariaDB: inserts, updates, deletes and columns that are added, over tables with a column of each kind."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tools.components.mariadb import MariaDbServer

SEED = 20261116


def source_of(server: MariaDbServer, database: str) -> dict[str, Any]:
    """A flow's settings for the tables of one database."""
    return {
        "type": "mariadb",
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "tables": {"include": [f"{database}.*"]},
    }


def create_tables(server: MariaDbServer, database: str, tables: int) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL sql_mode = ''")  # the load writes zero dates
        cursor.execute(f"CREATE database {database}")
        for i in range(tables):
            cursor.execute(
                f"CREATE TABLE {database}.t{i} (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, "
                "name varchar(64), price decimal(12,2), state enum('new','paid','gone') NOT NULL DEFAULT 'new', "
                "flags set('a','b','c'), born datetime(3), seen timestamp(6) NULL, day date, span time(2), "
                "small tinyint, big bigint unsigned, ratio double, part float, bits bit(12), doc json, raw varbinary(32), "
                "body text)"
            )


def fill_tables(server: MariaDbServer, database: str, tables: int, rows: int) -> None:
    """Rows that are there before anybody looks at the binlog."""
    with server.connect(database) as connection, connection.cursor() as cursor:
        for i in range(tables):
            cursor.execute(
                f"INSERT INTO t{i} (name, price, state, flags, born, seen, day, span, small, big, ratio, part, bits, doc, raw, body) "
                "SELECT CONCAT('grüße ', seq), seq / 7, 1 + seq % 3, seq % 8, NOW(3) - INTERVAL seq HOUR, IF(seq % 5, NOW(6), NULL), "
                "IF(seq % 9, CURDATE() - INTERVAL seq DAY, '0000-00-00'), SEC_TO_TIME(-7.25 * seq), CAST(seq % 256 AS SIGNED) - 128, "
                "18446744073709551615 - seq, seq / 3, seq / 3, seq, CONCAT('{\"n\": ', seq, '}'), UNHEX(MD5(seq)), "
                f"REPEAT('x', seq) FROM seq_1_to_{rows}"
            )


class Load:
    """Inserts, updates and deletes over all tables, in transactions of several sizes, until it is stopped."""

    def __init__(self, server: MariaDbServer, database: str, tables: int, pause_seconds: float = 0.03) -> None:
        self._server = server
        self._database = database
        self._tables = tables
        self._pause_seconds = pause_seconds  # between transactions
        self._stop = threading.Event()
        self._random = random.Random(SEED)
        self._error: BaseException | None = None
        self.transactions = 0  # that were committed so far
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        try:
            connection = self._server.connect(self._database, autocommit=False)
            with connection.cursor() as cursor:
                step = 0
                while not self._stop.is_set():
                    step += 1
                    self._transaction(cursor, step)
                    connection.commit()
                    self.transactions = step
                    if step % 100 == 0:
                        cursor.execute(f"ALTER TABLE t{step // 100 % self._tables} ADD COLUMN extra{step} int NULL")
                    self._stop.wait(self._pause_seconds)
            connection.close()
        except BaseException as error:  # `running` raises it in the test
            self._error = error

    def _transaction(self, cursor, step: int) -> None:  # type: ignore[no-untyped-def]
        pick = self._random
        for _ in range(pick.choice((1, 1, 2, 5))):
            table = f"t{pick.randrange(self._tables)}"
            rows = [
                (
                    f"näme-{step}-{i}",
                    pick.randrange(-(10**6), 10**6) / 100,
                    pick.choice(("new", "paid", "gone")),
                    pick.choice((None, "", "a", "a,c")),
                    "2026-11-16 01:02:03.456",
                    None if pick.random() < 0.3 else "2026-11-16 05:06:07.891011",
                    pick.choice((None, "0000-00-00", "2026-02-28")),
                    pick.choice(("-12:34:56.78", "838:59:58", None)),
                    pick.randrange(-128, 128),
                    pick.randrange(2**64),
                    pick.random() * 1e12,
                    pick.randrange(1000) / 8,
                    pick.randrange(4096),
                    '{"k": [1, "zwei", null]}',
                    bytes(pick.randrange(256) for _ in range(8)),
                    "x" * pick.choice((0, 10, 10, 10, 500)),
                )
                for i in range(pick.choice((1, 3, 10)))
            ]
            cursor.executemany(
                f"INSERT INTO {table} (name, price, state, flags, born, seen, day, span, small, big, ratio, part, bits, doc, raw, body) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                rows,
            )
            cursor.execute(f"UPDATE {table} SET price = price + 1, state = 'paid' WHERE id % 7 = {step % 7} LIMIT 20")
            cursor.execute(f"DELETE FROM {table} WHERE id % 11 = {step % 11} LIMIT 3")

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
            if self._error is not None:
                raise AssertionError("the load on the server failed") from self._error

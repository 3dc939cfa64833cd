"""The data of the benchmarks' databases: one table of orders, twelve columns of the usual kinds, about 120 bytes a
row."""

from __future__ import annotations

from tools.components.mariadb import MariaDbServer

DATABASE = "bench"
TABLE = "orders"
ROWS_PER_TRANSACTION = 500

_CREATE = f"""
CREATE TABLE {DATABASE}.{TABLE} (
  id BIGINT PRIMARY KEY, customer_id INT NOT NULL, status VARCHAR(16) NOT NULL, amount DECIMAL(12,2) NOT NULL,
  quantity SMALLINT UNSIGNED NOT NULL, price DOUBLE NOT NULL, placed_at DATETIME(3) NOT NULL, due DATE NOT NULL,
  email VARCHAR(80) NOT NULL, note TEXT, paid TINYINT NOT NULL, region CHAR(2) NOT NULL)
"""
_INSERT = f"""
INSERT INTO {DATABASE}.{TABLE}
SELECT seq + %(first)s, seq %% 5000, ELT(1 + seq %% 4, 'new', 'paid', 'shipped', 'returned'), (seq * 37 %% 100000) / 100,
  seq %% 900, seq / 7.0, TIMESTAMP('2026-01-01 00:00:00.123') + INTERVAL seq SECOND, DATE('2026-01-01') + INTERVAL seq %% 365 DAY,
  CONCAT('customer', seq %% 5000, '@example.com'), IF(seq %% 3 = 0, NULL, CONCAT('leave at the door ', seq)), seq %% 2,
  ELT(1 + seq %% 3, 'de', 'fr', 'it')
FROM {DATABASE}.seq_1_to_{ROWS_PER_TRANSACTION}
"""


def load(server: MariaDbServer, rows: int) -> int:
    """Inserts `rows` rows in transactions of `ROWS_PER_TRANSACTION`. Returns the size of the binlog in bytes."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(_CREATE)
        for first in range(0, rows, ROWS_PER_TRANSACTION):
            cursor.execute(_INSERT, {"first": first})
        cursor.execute("SHOW BINARY LOGS")
        return sum(int(row[1]) for row in cursor.fetchall())


def load_singly(server: MariaDbServer, rows: int) -> int:
    """Adds `rows` rows, each in a transaction of its own, to the table, which may not be there yet. The server itself
    loops, so that no client is waited for. Returns the size of the binlog in bytes."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        cursor.execute(_CREATE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
        cursor.execute(f"SELECT COALESCE(MAX(id), 0) FROM {DATABASE}.{TABLE}")
        last = int(cursor.fetchone()[0])
        one = _INSERT.replace(f"seq_1_to_{ROWS_PER_TRANSACTION}", "seq_1_to_1") % {"first": "i"}
        cursor.execute("SET autocommit = 1")
        cursor.execute(f"BEGIN NOT ATOMIC FOR i IN {last}..{last + rows - 1} DO {one}; END FOR; END")
        cursor.execute("SHOW BINARY LOGS")
        return sum(int(row[1]) for row in cursor.fetchall())

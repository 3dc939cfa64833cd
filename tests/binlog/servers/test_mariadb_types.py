"""Types that only MariaDB has, and its compression: what its binlog says, decoded, is what its SELECT says."""

from __future__ import annotations

import uuid

import pytest

from tests.binlog.servers.printed import changes
from tools.components.mariadb import MariaDbServer

pytestmark = pytest.mark.mariadb

UUIDS = [
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "123e4567-e89b-12d3-a456-426655440000",
    "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",  # version 7
    "1ec9414c-232a-6b00-b3c8-9e6bdeced846",  # version 6
    *(str(uuid.uuid4()) for _ in range(20)),
    *(str(uuid.uuid5(uuid.NAMESPACE_DNS, str(i))) for i in range(5)),
]
INET6 = ["::", "::1", "::1.2.3.4", "::ffff:10.0.0.1", "2001:db8::1", "1:0:0:2:0:0:0:3", "1:2:3:4:5:6:7:8", "fe80::",
         "1:0:2:0:3:0:4:0", "::ffff:0:0", "0:0:1::", "::2:0:0", "ff::1:0:0:0",
         "0:1:2:3:4:5:6:7", "1:2:3:4:5:6:7:0", "1:0:0:2:0:0:3:4", "::1:2"]  # fmt: skip


def test_addresses_and_uuids(mariadb_server: MariaDbServer) -> None:
    rows = [
        (i, UUIDS[i % len(UUIDS)], INET6[i % len(INET6)], f"{i * 37 % 256}.0.{i}.{i * 11 % 256}")
        for i in range(max(len(UUIDS), len(INET6)))
    ]
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS decoder")
        cursor.execute("CREATE OR REPLACE TABLE decoder.addresses (id INT PRIMARY KEY, u UUID, six INET6, four INET4)")
        cursor.executemany("INSERT INTO decoder.addresses VALUES (%s, %s, %s, %s)", rows)
        connection.commit()
        cursor.execute(
            "SELECT id, CAST(u AS CHAR), CAST(six AS CHAR), CAST(four AS CHAR) FROM decoder.addresses ORDER BY id"
        )
        wanted = [dict(zip(("id", "u", "six", "four"), map(str, row), strict=True)) for row in cursor.fetchall()]
    forms = {"u": {"form": "uuid"}, "six": {"form": "inet6"}, "four": {"form": "inet4"}}
    assert [change.after for change in changes(mariadb_server, "addresses", forms)] == wanted


@pytest.mark.parametrize("wrap", [0, 1])
def test_compressed_columns_and_events(mariadb_server: MariaDbServer, wrap: int) -> None:
    """Columns and events compressed by the server, both at once."""
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS decoder")
        cursor.execute(
            f"CREATE OR REPLACE TABLE decoder.packed{wrap} (id INT PRIMARY KEY, v VARCHAR(3000) COMPRESSED CHARACTER SET utf8mb4, "
            "t TEXT COMPRESSED CHARACTER SET latin1, b LONGBLOB COMPRESSED)"
        )
        cursor.execute("SET SESSION column_compression_zlib_wrap = %s", (wrap,))
        cursor.execute("SET GLOBAL log_bin_compress = ON")
        try:
            cursor.execute(
                f"INSERT INTO decoder.packed{wrap} SELECT seq, REPEAT('ü', seq * 20), REPEAT('é', seq * 9), REPEAT('b', seq * seq) "
                "FROM decoder.seq_0_to_100"
            )
            connection.commit()
        finally:
            cursor.execute("SET GLOBAL log_bin_compress = OFF")
    wanted = [{"id": str(i), "v": "ü" * (i * 20), "t": "é" * (i * 9), "b": "62" * (i * i)} for i in range(101)]
    assert [change.after for change in changes(mariadb_server, f"packed{wrap}")] == wanted

"""XA, savepoints, rollbacks and tables without transactions on real servers: the log, applied, gives the server's tables."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from pymysql.err import OperationalError

from penstock.entries.decode import decode_entries
from penstock.entries.stores import SOURCE_HELD
from penstock.log import LogReader
from penstock.operations.verify.log_replay import read_history
from penstock.schema.changes import OP_DELETE, OP_INSERT, ChangeBatch
from tests.capture.running import state_of
from tests.sources.mysql.streaming import fresh, run, session, settings
from tests.support.components import FAMILIES
from tools.components.database import DatabaseServer

STEPS = [
    ["XA START 'x1'", "INSERT INTO tx.i VALUES (1), (2)", "XA END 'x1'", "XA PREPARE 'x1'"],
    ["INSERT INTO tx.i VALUES (50)", "XA COMMIT 'x1'"],
    ["XA START 'x2','b',7", "INSERT INTO tx.i VALUES (3)", "XA END 'x2','b',7", "XA PREPARE 'x2','b',7"],
    ["XA ROLLBACK 'x2','b',7"],
    ["XA START 'x3'", "INSERT INTO tx.i VALUES (4)", "XA END 'x3'", "XA COMMIT 'x3' ONE PHASE"],
    [
        "BEGIN", "INSERT INTO tx.i VALUES (5)", "INSERT INTO tx.m VALUES (1)", "SAVEPOINT s1", "INSERT INTO tx.i VALUES (6)",
        "INSERT INTO tx.m VALUES (2)", "ROLLBACK TO s1", "INSERT INTO tx.i VALUES (7)", "COMMIT",
    ],
    ["BEGIN", "INSERT INTO tx.i VALUES (8)", "INSERT INTO tx.m VALUES (3)", "ROLLBACK"],
    ["UPDATE tx.i SET a = a + 100 WHERE a IN (1, 50)", "DELETE FROM tx.i WHERE a = 2"],
    ["XA START 'x5'", "INSERT INTO tx.i VALUES (20)", "XA END 'x5'", "XA PREPARE 'x5'"],
]  # fmt: skip


def applied(directory: Path) -> dict[str, list[int]]:
    """The tables that the log's changes make."""
    reader = LogReader.open(directory / "log")
    history = read_history(reader)
    found: dict[str, set[Any]] = {}
    entries = reader.read(reader.first, history.complete_end)
    for change in decode_entries(entries, history.schemas, lambda schema, _: schema == "tx", history.void):
        if not isinstance(change, ChangeBatch):
            continue
        rows = found.setdefault(change.table.table, set())
        before, after = change.before[0].to_pylist(), change.after[0].to_pylist()
        for op, old, new in zip(change.op.tolist(), before, after, strict=True):
            if op != OP_INSERT:
                rows.remove(old)
            if op != OP_DELETE:
                assert new not in rows
                rows.add(new)
    return {name: sorted(rows) for name, rows in found.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_log_applied_is_the_servers_tables(family: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server: DatabaseServer = request.getfixturevalue(f"{family}_server")
    with session(server) as cursor:
        fresh(cursor, "tx")
        cursor.execute("CREATE TABLE tx.i (a int primary key) ENGINE=InnoDB")
        cursor.execute("CREATE TABLE tx.m (a int primary key) ENGINE=MyISAM")
    source = settings(server, tables={"include": ["tx.*"]})
    run(tmp_path, source)
    try:
        for steps in STEPS:  # each in a session of its own, with a restart of capture between them
            with session(server) as cursor:
                for sql in steps:
                    if "tx.m" not in sql or family == "mariadb":  # MySQL with GTIDs refuses them inside transactions
                        cursor.execute(sql)
            run(tmp_path, source)
            with session(server) as cursor:
                truth = {}
                for name in ("i", "m"):
                    cursor.execute(f"SELECT a FROM tx.{name} ORDER BY a")
                    truth[name] = [int(row[0]) for row in cursor.fetchall()]
            assert {"i": [], "m": [], **applied(tmp_path)} == truth, steps
        held = [xid for xid, _ in state_of(tmp_path / "log").store(SOURCE_HELD).items()]
        assert held == ["1:7835:"]
    finally:
        with session(server) as cursor, contextlib.suppress(OperationalError):
            cursor.execute("XA ROLLBACK 'x5'")
    run(tmp_path, source)
    assert not list(state_of(tmp_path / "log").store(SOURCE_HELD).items())

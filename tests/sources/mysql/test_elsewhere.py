"""What happens in databases that are not followed never ends a flow, whatever a server logs of it."""

from __future__ import annotations

from pathlib import Path

from tests.operations.resume.shop import replayed
from tests.sources.mysql.streaming import fresh, row_events, run, session, settings
from tools.components.database import DatabaseServer

STATEMENTS = (
    "LOAD DATA INFILE '{file}' INTO TABLE elsewhere2.t",
    "INSERT /* followed.t */ INTO elsewhere2.t VALUES (3, 'followed.t')",
    "UPDATE elsewhere2.t a JOIN elsewhere2.t b ON a.a = b.a SET a.b = 'q'",
    "DELETE x FROM elsewhere2.t x JOIN followed.t y ON x.a = y.a",
    "INSERT INTO elsewhere2.t WITH x AS (SELECT 1 a) SELECT a, 'z' FROM x",
    "CREATE FUNCTION elsewhere2.f() RETURNS int DETERMINISTIC BEGIN INSERT INTO elsewhere2.t VALUES (10, 'f'); RETURN 1; END",
    "SELECT elsewhere2.f()",
    "CREATE EVENT elsewhere2.e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    "CREATE TABLE elsewhere2.`select from followed.t` (a int)",
    "INSERT elsewhere2 . `select from followed.t` SET a = 3",
    "DROP FUNCTION elsewhere2.f",
)


def test_statements_instead_of_rows(server: DatabaseServer, tmp_path: Path) -> None:
    source = settings(server, tables={"include": ["followed.*"]})
    file = server.directory / "loaded.txt"  # where the server may read, whoever it runs as
    file.write_text("1\tx\n2\ty\n")
    file.chmod(0o644)
    with session(server) as cursor:
        for name in ("followed", "elsewhere2"):
            fresh(cursor, name)
        cursor.execute("CREATE TABLE followed.t (a int primary key)")
        cursor.execute("CREATE TABLE elsewhere2.t (a int, b varchar(50))")
        run(tmp_path, source)
        cursor.execute("USE followed")
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        for sql in STATEMENTS:
            cursor.execute(sql.replace("{file}", str(file)))
        cursor.execute("SET SESSION binlog_format = 'ROW'")
        cursor.execute("INSERT INTO followed.t VALUES (7)")
        run(tmp_path, source)
        assert len(row_events(tmp_path)) == 1
        assert not replayed(tmp_path)[1].parked
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute(f"LOAD DATA INFILE '{file}' INTO TABLE t (a, @ignored)")
        cursor.execute("DROP DATABASE elsewhere2")
    run(tmp_path, source)  # its rows are not in the binlog: the table is parked, and the flow goes on
    assert list(replayed(tmp_path)[1].parked) == ["followed.t"]

"""The verdict over a log: it holds each transaction of the server once and in order, and applied to empty tables it gives the
server's tables.

The tables are those of another real server, and DDL is executed there as it stands in the log. What the server's binlog
has is asked of the server itself (SHOW BINLOG EVENTS): nothing of Penstock reads it here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pymysql
from pymysql.constants import CLIENT

from penstock.entries.decode import decode_entries
from penstock.entries.format import Kind, Part, gtid_text, parse_entry
from penstock.log import LogReader
from penstock.operations.verify.log_replay import read_history
from penstock.schema.changes import OP_DELETE, OP_INSERT, ChangeBatch, Presence, SchemaChange
from penstock.schema.model import Column
from tests.e2e.servers.workload import DATABASE, SKIPPED
from tools.components.database import DatabaseServer

_ROW_EVENT = re.compile(r"(Write|Update|Delete)_(compressed_)?rows")
_GTID = re.compile(r"GTID (\d+-\d+-\d+)|GTID_NEXT= '([^']+)'")


def compare(
    state_dir: Path, server: DatabaseServer, mirror: DatabaseServer, create: Callable[[DatabaseServer], None]
) -> int:
    """Fails where the log is not what the server did. Returns how many transactions there are."""
    reader = LogReader.open(state_dir / "log")
    logged = logged_gtids(reader)
    with contextlib.closing(server.connect(DATABASE)) as connection, connection.cursor() as cursor:
        must, may = server_gtids(cursor)
        assert len(set(logged)) == len(logged), [gtid for gtid in set(logged) if logged.count(gtid) > 1]
        places = {gtid: place for place, gtid in enumerate(may)}
        unknown = [gtid for gtid in logged if gtid not in places]
        assert not unknown, unknown
        in_order = sorted(logged, key=places.__getitem__)
        assert logged == in_order
        missing = [gtid for gtid in must if gtid not in set(logged)]
        assert not missing, (len(missing), missing[:5])
        with contextlib.closing(_connect(mirror)) as other, other.cursor() as target:
            create(mirror)
            target.execute(f"USE {DATABASE}")
            target.execute("SET time_zone = '+00:00'")
            apply_log(reader, target)
            cursor.execute("SET time_zone = '+00:00'")
            assert tables(target) == tables(cursor)
            for table in tables(cursor):
                if not table.startswith(SKIPPED):
                    assert rows(target, table) == rows(cursor, table), table
    return len(must)


def _connect(mirror: DatabaseServer) -> Any:
    """An UPDATE that changes nothing has found its row all the same."""
    return pymysql.connect(
        host=mirror.host, port=mirror.port, user=mirror.user, password=mirror.password, charset="utf8mb4",
        client_flag=CLIENT.FOUND_ROWS,
    )  # fmt: skip


# -- transactions --------------------------------------------------------------------------------------------------


def logged_gtids(reader: LogReader) -> list[str]:
    """Of the transactions that a reader of the log sees, in its order."""
    void = read_history(reader).void
    found = []
    commit_ts = 0
    for entry in reader.read(reader.first, reader.end()):
        if not len(entry.data):
            continue
        parsed = parse_entry(entry.data)
        for record in parsed.transactions:
            if record["kind"] in (Kind.HELD, Kind.VOID) or int(record["commit_ts"]) in void:
                continue
            if record["part"] in (Part.WHOLE, Part.FIRST):
                assert int(record["commit_ts"]) > commit_ts
                commit_ts = int(record["commit_ts"])
                tag = parsed.header.tags[int(record["tag"]) - 1] if record["tag"] else ""
                found.append(gtid_text(parsed.header.flavour, record["gtid"].tobytes(), tag))
            else:
                assert int(record["commit_ts"]) == commit_ts
    return found


def server_gtids(cursor: Any) -> tuple[list[str], list[str]]:
    """Of the transactions that changed rows of tables that are followed, and of all, in the order of their commits."""
    must, may = [], []
    groups: dict[str, bool] = {}  # XA id → whether it changed such a row
    for events in _groups(cursor):
        match = _GTID.search(events[0][1])
        assert match is not None, events[0]
        gtid = match[1] or match[2]
        may.append(gtid)
        maps = [info for kind, info in events if kind == "Table_map" and f"({DATABASE}." in info]
        changed = bool([info for info in maps if f".{SKIPPED}" not in info]) and any(
            _ROW_EVENT.match(kind) for kind, _ in events
        )
        last_kind, last = events[-1]
        if last.startswith("XA PREPARE"):
            groups[last.removeprefix("XA PREPARE ")] = changed
        elif last_kind == "Query" and last.startswith("XA COMMIT"):
            if groups.pop(last.removeprefix("XA COMMIT "), False):
                must.append(gtid)
        elif changed and last != "ROLLBACK" and not last.startswith("XA ROLLBACK"):
            must.append(gtid)
    return must, may


def _groups(cursor: Any) -> Iterator[list[tuple[str, str]]]:
    """The events of each transaction as (type, information)."""
    cursor.execute("SHOW BINARY LOGS")
    group: list[tuple[str, str]] = []
    for file in [row[0] for row in cursor.fetchall()]:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{file}'")
        for _, _, kind, _, _, info in cursor.fetchall():
            if kind in ("Gtid", "Rotate", "Stop", "Format_desc") and group:
                # A server that was killed may leave a transaction without its end.
                if _is_whole(group):
                    yield group
                group = []
            if kind == "Gtid" or (group and kind != "Binlog_checkpoint"):
                group.append((kind, info))
    if group and _is_whole(group):
        yield group


def _is_whole(group: list[tuple[str, str]]) -> bool:
    return group[-1][0] in ("Xid", "Query", "XA_prepare", "Query_compressed") and group[-1][1] != "BEGIN"


# -- tables --------------------------------------------------------------------------------------------------------


def tables(cursor: Any) -> list[str]:
    cursor.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{DATABASE}' ORDER BY 1")
    return [row[0] for row in cursor.fetchall()]


def rows(cursor: Any, table: str) -> list[tuple[Any, ...]]:
    cursor.execute(f"SELECT * FROM {DATABASE}.`{table}`")
    return sorted(cursor.fetchall(), key=repr)


def apply_log(reader: LogReader, cursor: Any) -> None:
    history = read_history(reader)
    entries = reader.read(reader.first, history.complete_end)
    done = 0
    cursor.execute("SET autocommit = 1")  # without it MariaDB's EXCHANGE PARTITION waits for its own session

    def wanted(schema: str, table: str) -> bool:
        return schema == DATABASE and not table.startswith(SKIPPED)

    for change in decode_entries(entries, history.schemas, wanted, history.void):
        if isinstance(change, SchemaChange):
            assert not change.table.parked, change.table
            # A statement that changes several names is one change for each of them.
            if change.commit_ts != done and change.table.query:
                cursor.execute(change.table.query)
            done = change.commit_ts
        else:
            cursor.execute("BEGIN")
            _apply(change, cursor)
            cursor.execute("COMMIT")


def _apply(batch: ChangeBatch, cursor: Any) -> None:
    columns = batch.table.columns
    table = f"`{batch.table.schema}`.`{batch.table.table}`"
    before = _image(batch.before, batch.present_before, columns)
    after = _image(batch.after, batch.present_after, columns)
    key = batch.table.primary_key or range(len(columns))
    inserts: list[dict[int, Any]] = []  # in a row, with the same columns

    def insert() -> None:
        if inserts:
            names = ", ".join(f"`{columns[i].name}`" for i in inserts[0])
            places = ", ".join(["%s"] * len(inserts[0]))
            sql = f"INSERT INTO {table} ({names}) VALUES ({places})"
            cursor.executemany(sql, [list(one.values()) for one in inserts])
            inserts.clear()

    for op, old, new in zip(batch.op.tolist(), before, after, strict=True):
        if inserts and (op != OP_INSERT or inserts[0].keys() != new.keys()):
            insert()
        if op == OP_INSERT:
            inserts.append(new)
            continue
        where = " AND ".join(f"`{columns[i].name}` <=> %s" for i in key)
        found = [old[i] for i in key]
        if op == OP_DELETE:
            count = cursor.execute(f"DELETE FROM {table} WHERE {where} LIMIT 1", found)
            assert count == 1, ("no such row", table, found)
        else:
            sets = ", ".join(f"`{columns[i].name}` = %s" for i in new)
            count = cursor.execute(f"UPDATE {table} SET {sets} WHERE {where} LIMIT 1", [*new.values(), *found])
            assert count == 1, ("no such row", table, found)
    insert()


def _image(image: list[Any], present: Presence | None, columns: tuple[Column, ...]) -> list[dict[int, Any]]:
    """For each row, the values that it has, by column."""
    values = [
        [_literal(value, column) for value in array.to_pylist()] for array, column in zip(image, columns, strict=True)
    ]
    there = [np.ones(len(array), bool) if present is None else present.column(i) for i, array in enumerate(image)]
    return [
        {i: values[i][row] for i in range(len(columns)) if there[i][row]}
        for row in range(len(values[0]) if values else 0)
    ]


def _literal(value: Any, column: Column) -> Any:
    """As the server takes it; the packed forms are those of penstock.schema.changes."""
    kind = column.base_type
    if value is None:
        return None
    if kind == "date":
        return f"{value >> 9:04}-{value >> 5 & 15:02}-{value & 31:02}"
    if kind == "time":
        sign, value = ("-", -value) if value < 0 else ("", value)
        return f"{sign}{value // 3_600_000_000:02}:{value // 60_000_000 % 60:02}:{value // 1_000_000 % 60:02}.{value % 1_000_000:06}"
    if kind == "datetime":
        packed, micro = value >> 24, value & 0xFFFFFF
        month = packed >> 22
        day = f"{month // 13:04}-{month % 13:02}-{packed >> 17 & 31:02}"
        return f"{day} {packed >> 12 & 31:02}:{packed >> 6 & 63:02}:{packed & 63:02}.{micro:06}"
    if kind == "timestamp":
        return str((datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)).replace(tzinfo=None))
    return value

"""Cuts a binlog file into log entries, one transaction each, as simply as can be: for tests of what reads entries."""

from __future__ import annotations

import numpy as np

from penstock.binlog.bodies import (
    FormatDescription,
    MariadbGtid,
    parse_format_description,
    parse_mariadb_gtid,
    parse_query,
)
from penstock.binlog.events import split_events, verify_checksums
from penstock.binlog.types import EventType as E
from penstock.entries.format import TXN_DTYPE, EntryHeader, Kind, encode_entry
from penstock.log import Entry
from penstock.log.position import Position
from penstock.schema.ddl import apply_ddl, is_ddl
from penstock.schema.view import SchemaView

KEPT = frozenset(
    {
        E.GTID,
        E.ANONYMOUS_GTID,
        E.MARIADB_GTID,
        E.TABLE_MAP,
        E.QUERY,
        E.XID,
        E.TRANSACTION_PAYLOAD,
        E.PARTIAL_UPDATE_ROWS,
    }
    | set(range(20, 26))
    | set(range(30, 33))
    | set(range(165, 172))
)
STARTS = frozenset({E.GTID, E.ANONYMOUS_GTID, E.MARIADB_GTID})


def entries_of(data: bytes, *, per_entry: int = 1) -> tuple[list[Entry], SchemaView]:
    """The file's transactions, `per_entry` in an entry but for DDL, and the schemas that its DDL makes."""
    events = split_events(data, start=4)
    fde_event = data[4 : 4 + int(events.size[0])]
    fde = parse_format_description(fde_event)
    if fde.checksum:
        verify_checksums(data, events)
    header = EntryHeader(fde.flavour, bool(fde.checksum), "test", ("file",), fde_event)
    transactions: list[tuple[int, list[bytes]]] = []
    for offset, size, kind in zip(events.offset.tolist(), events.size.tolist(), events.type.tolist(), strict=True):
        if kind in STARTS or not transactions:
            transactions.append((offset, []))
        if kind in KEPT:
            transactions[-1][1].append(data[offset : offset + size])
    view = SchemaView()
    entries: list[Entry] = []
    waiting: list[tuple[int, list[bytes]]] = []

    def flush(kind: Kind) -> None:
        if waiting:
            entries.append(_entry(header, waiting, Position(1, len(entries)), kind))
            waiting.clear()

    for transaction in transactions:
        if not transaction[1]:
            continue
        ddl = _ddl(transaction[1], fde)
        if ddl is None:
            waiting.append(transaction)
            if len(waiting) >= per_entry:
                flush(Kind.ROWS)
            continue
        flush(Kind.ROWS)
        position = Position(1, len(entries))
        schema, sql, charset = ddl
        for table in apply_ddl(
            sql,
            schema,
            1000 + transaction[0],
            lambda s, t, p=position: view.find(s, t, p),  # type: ignore[misc]
            default_charset=charset or "utf8mb4",
        ):
            view.add(position, table)
        waiting.append(transaction)
        flush(Kind.DDL)
    flush(Kind.ROWS)
    return entries, view


def _ddl(events: list[bytes], fde: FormatDescription) -> tuple[str, str, str | None] | None:
    gtid: MariadbGtid | None = None
    for event in events:
        if event[4] == E.MARIADB_GTID:
            gtid = parse_mariadb_gtid(event, fde)
        if event[4] == E.QUERY:
            query = parse_query(event, fde)
            if is_ddl(query.sql) and not (gtid and gtid.alter_without_effect):
                return query.schema, query.sql, query.database_charset
    return None


def _entry(header: EntryHeader, transactions: list[tuple[int, list[bytes]]], position: Position, kind: Kind) -> Entry:
    records = np.zeros(len(transactions), TXN_DTYPE)
    offset = first = 0
    for record, (place, events) in zip(records, transactions, strict=True):
        length = sum(map(len, events))
        record["offset"], record["length"] = offset, length
        record["first_event"], record["events"] = first, len(events)
        record["commit_ts"] = 1000 + place
        record["kind"] = kind
        offset += length
        first += len(events)
    parts = encode_entry(header, records, [event for _, events in transactions for event in events])
    return Entry(position, memoryview(b"".join(parts)), (), 0)

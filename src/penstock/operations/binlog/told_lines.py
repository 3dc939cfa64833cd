"""What stands between the rows, as JSON lines (docs/formats/decode-jsonl.md, "Other lines")."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from penstock.capture.transactions.frame_content import Ending, Told
from penstock.operations.binlog.reading import Seen
from penstock.schema.model import TableSchema

_REASONS = {Ending.ROLLBACK: "statement", Ending.ABANDONED: "abandoned"}


def told_line(seen: Seen, wanted: Callable[[str, str], bool] | None) -> bytes:
    """The line, with its end; empty if it is left out because only some tables are `wanted`."""
    if wanted is not None and not any(_is_wanted(table, wanted) for table in seen.changes):
        return b""
    return _line(_document(seen))


def statement_line(told: Told) -> bytes:
    """The line of a statement inside a transaction."""
    return told_line(Seen(told), None)


def incomplete_line(why: str) -> bytes:
    """The last line of an output that lacks what comes after it in the files."""
    return _line({"op": "incomplete", "reason": why})


def _is_wanted(table: TableSchema, wanted: Callable[[str, str], bool]) -> bool:
    return bool(table.table) and wanted(table.schema, table.table)


def _line(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n").encode("utf-8", "replace")


def _document(seen: Seen) -> dict[str, Any]:
    told = seen.told
    where = {
        "position": f"{told.file}:{told.start_pos}",
        "gtid": told.gtid or None,
        "timestamp": told.timestamp,
    }
    if told.query is not None:
        statement = {"schema": told.query.schema, **where, "sql": told.query.sql}
        if not seen.is_ddl:
            return {"op": "statement", **statement}
        changes = [
            {"kind": str(table.kind), "schema": table.schema, "table": table.table or None} for table in seen.changes
        ]
        return {"op": "ddl", **statement, "changes": changes}
    if told.ending in _REASONS:
        return {"op": "rollback", **where, "reason": _REASONS[told.ending]}
    if told.ending is Ending.XA_COMMIT:
        return {"op": str(told.ending), **where, "xid": told.xid, "rows_known": seen.rows_known}
    return {"op": str(told.ending), **where, **({"xid": told.xid} if told.xid else {})}

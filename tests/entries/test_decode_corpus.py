"""Real MariaDB binlogs through entries and decoder: folding all changes gives the tables that the server ended with."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from penstock.binlog.dump import formatter
from penstock.binlog.table_map import MapColumn
from penstock.binlog.types import ColumnType as C
from penstock.entries.decode import decode_entries
from penstock.schema.changes import OP_DELETE, OP_INSERT, ChangeBatch, Presence
from penstock.schema.model import Column, TableSchema
from tests.capture.fake_log import captured
from tests.support import components

CORPUS = components.CORPUS / "mariadb-10.11"

pytestmark = components.NEEDS_CORPUS

IN_SCOPE = [
    "checksum_none",
    "decimal",
    "geometry",
    "json",
    "maria_gtid_domains_two_phase_alter",
    "metadata_full",
    "metadata_minimal",
    "mysql56_temporal_off",
    "numeric",
    "row_image_minimal",
    "row_image_noblob",
    "rows_query",
    "strings",
    "temporal",
]
# Scenarios that also do what the fold below does not: XA, savepoints, renames. Of these the tables that are compared.
IN_PART = {"log_bin_compress": {"num", "st", "es", "wide"}, "maria_types": {"mx", "mu", "jx"}}


def _text(column: Column, value: Any) -> Any:
    """A value as the truth files write it."""
    base = column.base_type
    fsp = column.arguments[0] if column.arguments else 0
    if value is None:
        return None
    if base in ("float", "double"):
        return value
    if base == "enum":
        return f"{value}|{column.elements[value - 1].encode().hex().upper() if value else ''}"
    if base == "set":
        names = ",".join(name for i, name in enumerate(column.elements) if value >> i & 1)
        signed = value - (1 << 64) if value >> 63 else value  # `col + 0` of a set is signed
        return f"{signed}|{names.encode().hex().upper()}"
    if base == "bit":
        return f"{value:X}"
    if base in ("date", "time", "datetime", "timestamp"):
        kind = {"date": C.DATE, "time": C.TIME2, "datetime": C.DATETIME2, "timestamp": C.TIMESTAMP2}[base]
        return formatter(MapColumn(kind, fsp))(value)
    if base == "year":
        return f"{value:04}"
    if isinstance(value, bytes):
        return value.hex().upper()
    if column.charset is not None:
        return value.encode(CODECS.get(column.charset, "utf-8")).hex().upper()
    if base == "decimal" and not isinstance(value, str):
        return f"{value:f}"
    return str(value)


CODECS = {
    "latin1": "cp1252",
    "gbk": "gbk",
    "sjis": "shift_jis",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "cp1251": "cp1251",
}
UNKNOWN = "what the server chose"  # the value of a column that an insert left to its default


def _image(batch: ChangeBatch, columns: list[Any], present: Presence | None) -> list[tuple[Any, ...]]:
    """The image of each row; ... where it lacks the column."""
    shown = [column.to_pylist() for column in columns]
    for c in range(len(columns)) if present is not None else ():
        assert present is not None
        shown[c] = [value if has else ... for value, has in zip(shown[c], present.column(c).tolist(), strict=True)]
    return list(zip(*shown, strict=True))


def fold(batch: ChangeBatch, rows: dict[tuple[Any, ...], int]) -> None:
    """Applies the changes to a multiset of rows; a row that is not there is an error."""
    before = _image(batch, batch.before, batch.present_before)
    after = _image(batch, batch.after, batch.present_after)
    for op, image, new in zip(batch.op.tolist(), before, after, strict=True):
        old = (UNKNOWN,) * len(new)
        if op != OP_INSERT:
            old = _found(rows, image)
            assert rows.get(old, 0) > 0, f"{batch.table.name}: {old} is not there"
            rows[old] -= 1
        if op != OP_DELETE:
            row = tuple(was if value is ... else value for value, was in zip(new, old, strict=True))
            rows[row] = rows.get(row, 0) + 1
        else:
            assert all(value in (None, ...) for value in new)


def _found(rows: dict[tuple[Any, ...], int], image: tuple[Any, ...]) -> tuple[Any, ...]:
    if ... not in image:
        return image
    return next(
        row
        for row, count in rows.items()
        if count and all(value in (..., was) or was == UNKNOWN for value, was in zip(image, row, strict=True))
    )


@pytest.mark.parametrize("entry_bytes", [1, 1 << 18])
@pytest.mark.parametrize("scenario", [*IN_SCOPE, *IN_PART])
def test_final_tables(scenario: str, entry_bytes: int) -> None:
    truth = json.loads((CORPUS / f"{scenario}.truth.json").read_text())
    log = captured((CORPUS / f"{scenario}.binlog").read_bytes(), entry_bytes=entry_bytes)
    entries, view, void = log.decodable()
    tables: dict[str, tuple[TableSchema, dict[tuple[Any, ...], int]]] = {}
    last: dict[str, bytes] = {}
    only = IN_PART.get(scenario)
    for change in decode_entries(entries, view, wanted=lambda _, table: only is None or table in only, void=void):
        name = change.table.name
        if not change.table.table:
            continue  # a database
        if not isinstance(change, ChangeBatch):
            if name in tables and change.table.columns:
                added = len(change.table.columns) - len(tables[name][0].columns)
                assert added == 1  # the one ALTER of these scenarios adds a nullable column at the end
                rows = {(*row, None): count for row, count in tables[name][1].items()}
                tables[name] = (change.table, rows)
            else:
                tables[name] = (change.table, {})
            continue
        seqs = [bytes(seq) for seq in change.seq]
        assert seqs == sorted(set(seqs)) and last.get(name, b"") < seqs[0]
        assert np.all(np.diff(change.commit_ts.astype(np.int64)) >= 0)
        last[name] = seqs[-1]
        for column in (*change.before, *change.after):
            column.validate(full=True)
        fold(change, tables.setdefault(name, (change.table, {}))[1])
    compared = 0
    for name, expected in truth["final_state"].items():
        if "rows" not in expected or (only is not None and name.partition(".")[2] not in only):
            continue
        table, rows = tables[name]
        assert [column.name for column in table.columns] == [column[0] for column in expected["columns"]]
        got = [
            [_text(c, v) for c, v in zip(table.columns, row, strict=True)] for row, n in rows.items() for _ in range(n)
        ]
        want = [[v["f"] if isinstance(v, dict) else v for v in row] for row in expected["rows"]]
        floats = [i for i, c in enumerate(table.columns) if c.base_type in ("float", "double")]
        for row in want:
            for i in floats:
                row[i] = None if row[i] is None else float(row[i])
        key = [i for i in range(len(table.columns)) if i not in floats]
        got.sort(key=lambda row: [str(row[i]) for i in key])
        want.sort(key=lambda row: [str(row[i]) for i in key])
        assert len(got) == len(want)
        for mine, theirs in zip(got, want, strict=True):
            for i in floats:
                assert (mine[i] is None) == (theirs[i] is None)
                if mine[i] is not None:
                    assert math.isclose(
                        mine[i], theirs[i], rel_tol=1e-6 if table.columns[i].base_type == "float" else 0
                    )
            assert [mine[i] for i in key] == [theirs[i] for i in key], name
        compared += 1
    assert compared

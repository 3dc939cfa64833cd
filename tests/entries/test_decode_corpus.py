"""Real MariaDB binlogs through entries and decoder: folding all changes gives the tables that the server ended with."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from penstock.binlog.charset import codec_of
from penstock.binlog.dump import formatter
from penstock.binlog.table_map import MapColumn
from penstock.binlog.types import ColumnType as C
from penstock.entries.decode import decode_entries
from penstock.errors import NotSupported
from penstock.schema.changes import OP_DELETE, OP_INSERT, ChangeBatch
from penstock.schema.model import Column, TableSchema
from tests.entries.cutting import entries_of
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
    "numeric",
    "rows_query",
    "strings",
    "temporal",
]


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
        raw = value.encode(codec_of(column.charset))
        return raw.hex().upper()
    if base == "decimal" and not isinstance(value, str):
        return f"{value:f}"
    return str(value)


def fold(batch: ChangeBatch, rows: dict[tuple[Any, ...], int]) -> None:
    """Applies the changes to a multiset of rows; a row that is not there is an error."""
    before = list(zip(*(column.to_pylist() for column in batch.before), strict=True))
    after = list(zip(*(column.to_pylist() for column in batch.after), strict=True))
    for op, old, new in zip(batch.op.tolist(), before, after, strict=True):
        if op != OP_INSERT:
            assert rows.get(old, 0) > 0, f"{batch.table.name}: {old} is not there"
            rows[old] -= 1
        else:
            assert all(value is None for value in old)
        if op != OP_DELETE:
            rows[new] = rows.get(new, 0) + 1
        else:
            assert all(value is None for value in new)


@pytest.mark.parametrize("per_entry", [1, 1000])
@pytest.mark.parametrize("scenario", IN_SCOPE)
def test_final_tables(scenario: str, per_entry: int) -> None:
    truth = json.loads((CORPUS / f"{scenario}.truth.json").read_text())
    entries, view = entries_of((CORPUS / f"{scenario}.binlog").read_bytes(), per_entry=per_entry)
    tables: dict[str, tuple[TableSchema, dict[tuple[Any, ...], int]]] = {}
    last: dict[str, bytes] = {}
    for change in decode_entries(entries, view):
        name = change.table.name
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
        if "rows" not in expected:
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


@pytest.mark.parametrize(
    ("scenario", "says"),
    [
        ("row_image_minimal", "binlog_row_image=FULL"),
        ("row_image_noblob", "binlog_row_image=FULL"),
        ("log_bin_compress", "log_bin_compress=OFF"),
        ("mysql56_temporal_off", "mysql56_temporal_format=ON"),
        ("transactions_ddl", "TRUNCATE TABLE"),
        ("maria_types", "CREATE SEQUENCE"),
    ],
)
def test_refused_by_name(scenario: str, says: str) -> None:
    with pytest.raises(NotSupported, match=says):
        entries, view = entries_of((CORPUS / f"{scenario}.binlog").read_bytes())
        for _ in decode_entries(entries, view):
            pass

"""`penstock binlog decode` over the corpus, in all formats: against the manifest, and the formats against each other."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from penstock.binlog.bodies import parse_format_description
from penstock.binlog.events import split_events
from penstock.binlog.expand import expand_events
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.encode.change_lines.encoder import OPS
from penstock.errors import PenstockError
from penstock.operations.binlog.decode import EVENTS_FILE, DecodeOptions, decode_files
from penstock.operations.binlog.stats import StatsReader
from tests.binlog.test_public_corpus import _REFUSED as NOT_READ
from tests.binlog.test_public_corpus import PUBLIC, _bytes, _files
from tests.support import components

pytestmark = components.NEEDS_CORPUS

MARIADB = components.CORPUS / "mariadb-10.11"
_STRAY = "it cannot stand here"
# Files whose events can be read one by one, but whose changes cannot be told; with a part of what is said.
_NO_TRANSACTIONS = {
    "bug40482-bin.000001": "the server reports that it lost events",
    "ddl_in_transaction.000001": _STRAY,
    "json.binlog.000001": "only its difference to a document that was not logged",
    "orphan_begin_start.000001": _STRAY,
    "orphan_xa_commit.000001": _STRAY,
    "orphan_xa_prepare.000001": "no XA group is open",
    "orphan_xa_rollback.000001": _STRAY,
    "orphan_xid.000001": _STRAY,
    "ver_5_1-wl2325_r.001": "table ids have four bytes",
    "ver_5_1_23.001": _STRAY,  # rows outside of a transaction, as MySQL 5.1 logged them before its release
}
_SEQUENCES = "master-bin-seq_10.3.36.000001"  # its rows are those of a sequence
_ROWS = ("insert", "update", "delete")


def decode(path: Path, **options: Any) -> tuple[list[dict[str, Any]], PenstockError | None]:
    out: list[bytes] = []
    error = None
    try:
        decode_files([path], DecodeOptions(**options), lambda data: out.append(bytes(data)))
    except PenstockError as raised:
        error = raised
    return [json.loads(line) for line in b"".join(out).decode().split("\n") if line], error


def tables_of(directory: Path, extension: str, *columns: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for path in sorted(directory.glob(f"*.{extension}")):
        table = pq.read_table(path) if extension == "parquet" else pa.ipc.open_file(str(path)).read_all()
        found += [(path.name, row) for row in table.select(list(columns) or table.column_names).to_pylist()]
    return found


def rows_in(data: bytes) -> Counter[tuple[str, str, str]]:
    """All row events of a file, without a look at transactions."""
    outer = split_events(data, start=4)
    fde = parse_format_description(data[4 : 4 + int(outer.size[0])])
    expanded = expand_events(data, outer, fde)
    found: Counter[tuple[str, str, str]] = Counter()
    for layout, chosen in group_rows(expanded.buffer, expanded.events, fde).groups():
        start = int(expanded.events.offset[layout])
        raw = expanded.buffer[start : start + int(expanded.events.size[layout])].tobytes()
        table = parse_table_map(raw, fde)
        for rows in decode_rows(expanded.buffer, expanded.events, chosen, table, fde):
            for op, count in Counter(rows.op.tolist()).items():
                found[OPS[op], table.schema, table.table] += count
    return found


@pytest.mark.parametrize("row", _files(), ids=lambda row: row["file"])
def test_as_the_manifest_says(row: dict[str, str], tmp_path: Path) -> None:
    name = row["file"].rpartition("/")[2]
    path = tmp_path / name
    path.write_bytes(_bytes(PUBLIC / row["file"]))
    refused = NOT_READ.get(row["file"]) or NOT_READ.get(name) or _NO_TRANSACTIONS.get(name)
    lines, error = decode(path)
    rows = Counter((line["op"], line["schema"], line["table"]) for line in lines if line["op"] in _ROWS)
    assert (error is not None) == (refused is not None), error
    if refused is None:
        assert rows == (Counter() if name == _SEQUENCES else rows_in(path.read_bytes()))
    elif name in _NO_TRANSACTIONS:
        assert refused in str(error)
    for extension in ("parquet", "arrow"):
        directory = tmp_path / extension
        assert str(decode(path, format=extension, out=directory)[1]) == str(error)
        events = directory / EVENTS_FILE
        others = events.read_bytes().splitlines() if events.exists() else []
        assert [json.loads(line) for line in others] == [line for line in lines if line["op"] not in _ROWS]
        assert sorted(row["op"] for _, row in tables_of(directory, extension, "op")) == sorted(
            op for (op, _, _), count in rows.items() for _ in range(count)
        )
    stats = StatsReader([path]) if error is None or rows else None
    if stats is not None:
        try:
            figures = stats.read().to_json()
        except PenstockError as raised:
            assert str(raised) == str(error)
            figures = stats.stats.to_json()
        assert figures["rows"] == rows.total()
        assert figures["ddl"] == sum(line["op"] == "ddl" for line in lines)


def test_nothing_else_is_refused() -> None:
    assert {row["file"].rpartition("/")[2] for row in _files()} >= {*_NO_TRANSACTIONS, _SEQUENCES}


@pytest.mark.parametrize("path", sorted(MARIADB.glob("*.binlog")), ids=lambda path: path.stem)
def test_tables_say_what_the_lines_say(path: Path, tmp_path: Path) -> None:
    """In the same order, with the same columns absent; values that both formats hold alike are equal."""
    lines, error = decode(path)
    assert error is None
    changes = [line for line in lines if line["op"] in _ROWS]
    assert changes or path.stem == "empty"
    decode(path, format="parquet", out=tmp_path / "out")
    rows = sorted(tables_of(tmp_path / "out", "parquet"), key=lambda one: (one[1]["event"], one[1]["row"]))
    assert len(rows) == len(changes)
    for line, (name, row) in zip(changes, rows, strict=True):
        assert name.startswith(f"{line['schema']}.") and row["op"] == line["op"]
        assert f"{row['file']}:{row['pos']}" == line["position"]
        assert (row["gtid"], int(row["timestamp"].timestamp())) == (line["gtid"], line["timestamp"])
        for image in ("before", "after"):
            found, there = row[image], line[image]
            assert (found is None) == (there is None)
            if found is None:
                continue
            mask = int.from_bytes(row[f"{image}_present"] or b"\xff" * 512, "little")
            present = [column for k, column in enumerate(found) if mask >> k & 1]
            assert present == list(there)
            for column in present:
                if isinstance(found[column], int | str | bytes) or found[column] is None:
                    text = there[column]
                    if isinstance(found[column], bytes):
                        assert isinstance(text, dict)
                    elif found[column] is not None or text is None:
                        assert found[column] == text, (column, text)

"""Binlog files of many servers, against their manifest: all events, all column types, or the error that is expected."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from penstock.binlog.bodies import parse_format_description
from penstock.binlog.dump import dump_events
from penstock.binlog.errors import type_name
from penstock.binlog.events import split_events
from penstock.binlog.expand import expand_events
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import ColumnType, EventType
from penstock.errors import BadInput
from tests.support import components

PUBLIC = components.CORPUS / "public"

pytestmark = components.NEEDS_CORPUS

# Names in the manifest → ours.
_NAMES = {
    "FDE": "FORMAT_DESCRIPTION",
    "PREV_GTIDS": "PREVIOUS_GTIDS",
    "ANON_GTID": "ANONYMOUS_GTID",
    "PARTIAL_UPDATE": "PARTIAL_UPDATE_ROWS",
    "MDB_GTID": "MARIADB_GTID",
    "MDB_GTID_LIST": "MARIADB_GTID_LIST",
    "MDB_BINLOG_CHECKPOINT": "BINLOG_CHECKPOINT",
    "MDB_ANNOTATE": "ANNOTATE_ROWS",
    **{f"{op}_V{v}": f"{op}_ROWS_V{v}" for op in ("WRITE", "UPDATE", "DELETE") for v in (1, 2)},
}
_OLD_LAYOUT = "cut in the table map"
_BEFORE_5_0 = "before MySQL 5.0"
_CUT = "ends inside an event"
_NO_CRC = "checksum does not match"
# Everything that is not read, by its path or its name, with a part of what is said. All other files must be read.
_REFUSED = {
    "binlog_before_20574.bin": "encrypted binlogs are not supported",
    "bug11747416_32228_binlog.000001": _CUT,
    "corrupt-relay-bin.000624": "cut before its statement",
    "mdev-39404-binlog.000001": _NO_CRC,
    "mdev-4645-binlog_checksum.binlog": "headers of 23 bytes",
    "mdev-4645-binlog_group_id.binlog": "headers of 27 bytes",
    "mdev-4645-binlog_group_id_checksum.binlog": "headers of 31 bytes",
    "invalid_row_v2_tag.001": "rows without a table map",
    "corrupt-chunk-len_binlog-000000.ibb": "not a binlog file",
    "corrupt-chunk-len_binlog-000001.ibb": "not a binlog file",
    "binlog_no_fd_event.000001": "does not start with a format description",
    "duplicate_xid.000001": _NO_CRC,
    "duplicate_xid_ddl.000001": _NO_CRC,
    "duplicate_xid_xa_prepare.000001": _NO_CRC,
    "malformed_xid_xa_commit.000001": _NO_CRC,
    "malformed_xid_xa_rollback.000001": _NO_CRC,
    "binlog_truncated_event.000001": _CUT,
    "binlog_truncated_prev_gtid_event.000001": _CUT,
    "rpl_nogtid_encryption_master-bin.000002": "encrypted binlog",
    "ver_5_1-wl2325_s.001": "PRE_GA_WRITE_ROWS",
    "webscalesql+webscalesql-5.6/mysql-test/std_data/master-bin.000001": _BEFORE_5_0,
    "trunc_binlog.000001": _BEFORE_5_0,
    "binlog_old_version_4_1.000001": _BEFORE_5_0,
    "webscalesql+webscalesql-5.6/mysql-test/suite/binlog/std_data/bug32407.001": _OLD_LAYOUT,
    "ver_5_1-telco.001": _OLD_LAYOUT,
    "ver_5_1_17.001": _OLD_LAYOUT,
    "bug47142_master-bin.000001": _BEFORE_5_0,
    "binlog_output_base.flashback": _NO_CRC,
    "mysql_bin.19_1": "does not start with a format description",
    "mysql_bin.1": _CUT,
}


def _files() -> list[dict[str, str]]:
    if not PUBLIC.is_dir():
        return []
    with (PUBLIC / "MANIFEST.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def _counts(*texts: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for text in texts:
        for part in text.split(",") if text else ():
            name, _, count = part.rpartition(":")
            found[type_name(int(name)) if name.isdigit() else _NAMES.get(name, name)] += int(count)
    return found


def _column_types(data: bytes) -> Counter[str]:
    """Of all table maps, those in compressed transactions too."""
    outer = split_events(data, start=4)
    fde = parse_format_description(data[4 : 4 + int(outer.size[0])])
    expanded = expand_events(data, outer, fde)
    found: Counter[str] = Counter()
    for offset, size, kind in zip(
        expanded.events.offset.tolist(), expanded.events.size.tolist(), expanded.events.type.tolist(), strict=True
    ):
        if kind == EventType.TABLE_MAP:
            table = parse_table_map(expanded.buffer[offset : offset + size].tobytes(), fde)
            found.update(ColumnType(column.type).name.lower() for column in table.columns)
    return found


@pytest.mark.parametrize("row", _files(), ids=lambda row: row["file"])
def test_as_the_manifest_says(row: dict[str, str]) -> None:
    data = _bytes(PUBLIC / row["file"])
    refused = _REFUSED.get(row["file"]) or _REFUSED.get(row["file"].rpartition("/")[2])
    events: Counter[str] = Counter()
    tables: Counter[str] = Counter()
    if refused is not None:
        with pytest.raises(BadInput, match=refused):
            for _ in dump_events(data):
                pass
        return
    assert int(row["crc_bad"]) == 0
    for event in dump_events(data):
        json.dumps(event)
        events[event["type"]] += 1
        tables.update(f"{event['schema']}.{event['table']}" for _ in event.get("rows", ()))
        if "rows" in event:
            assert event["rows"] and "rows_left_out" not in event
    expected = _counts(row["events"], row["inner_events"])
    assert events == expected
    assert bool(tables) == any("_ROWS" in kind and kind not in ("ANNOTATE_ROWS",) for kind in expected)
    assert _column_types(data) == _counts(row["column_types"])


def test_nothing_else_is_refused() -> None:
    names = {name for row in _files() for name in (row["file"], row["file"].rpartition("/")[2])}
    assert names >= _REFUSED.keys()

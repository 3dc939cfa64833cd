"""Every public binlog file is read to its end or refused with a typed error that says why; never anything else."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from penstock.binlog.dump import dump_events
from penstock.binlog.errors import BadChecksum
from penstock.binlog.types import EventType
from penstock.errors import BadInput
from tests.support import components

PUBLIC = components.CORPUS / "public"

pytestmark = components.NEEDS_CORPUS

_SHORT = {
    "FDE": "FORMAT_DESCRIPTION",
    "QUERY": "QUERY",
    "XID": "XID",
    "TABLE_MAP": "TABLE_MAP",
    "WRITE_V1": "WRITE_ROWS_V1",
    "UPDATE_V1": "UPDATE_ROWS_V1",
    "DELETE_V1": "DELETE_ROWS_V1",
    "WRITE_V2": "WRITE_ROWS_V2",
    "UPDATE_V2": "UPDATE_ROWS_V2",
    "DELETE_V2": "DELETE_ROWS_V2",
}


def _files() -> list[dict[str, str]]:
    if not PUBLIC.is_dir():
        return []
    with (PUBLIC / "MANIFEST.tsv").open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


@pytest.mark.parametrize("row", _files(), ids=lambda row: row["file"])
def test_reads_or_refuses(row: dict[str, str]) -> None:
    counts: dict[str, int] = {}
    rows = 0
    try:
        for event in dump_events(_bytes(PUBLIC / row["file"])):
            json.dumps(event)
            counts[event["type"]] = counts.get(event["type"], 0) + 1
            if "rows" in event:
                rows += len(event["rows"])
    except BadInput as error:
        assert str(error)
        if isinstance(error, BadChecksum):
            assert int(row["crc_bad"]) > 0
        return
    assert int(row["crc_bad"]) == 0
    expected = dict(part.rsplit(":", 1) for part in row["events"].split(",") if part)
    for short, name in _SHORT.items():
        assert counts.get(name, 0) == int(expected.get(short, 0)), name
    if any(counts.get(name, 0) for name in EventType.__members__ if "ROWS_V" in name):
        assert rows


def test_most_of_it_is_read() -> None:
    """The refusals are known by name: anything new in this list is a regression."""
    refused: dict[str, list[str]] = {}
    read = 0
    for row in _files():
        try:
            for _ in dump_events(_bytes(PUBLIC / row["file"])):
                pass
            read += 1
        except BadInput as error:
            refused.setdefault(type(error).__name__, []).append(f"{row['file']}: {error}")
    print(json.dumps(refused, indent=1))
    assert read >= 80

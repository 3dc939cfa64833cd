"""Small binlog files with real rows: shop.item (id INT, name VARCHAR), shop.stock (id INT)."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.binlog.types import MAGIC, EventType
from penstock.binlog.types import ColumnType as C
from penstock.operations.binlog.given_files import GivenFiles
from penstock.operations.binlog.jsonl import JsonLines
from penstock.operations.binlog.reading import FileReader, Seen
from tests.binlog import build
from tests.capture.streams import Stream

ITEM = "CREATE TABLE item (id INT UNSIGNED PRIMARY KEY, name VARCHAR(20) CHARACTER SET utf8mb4)"
STOCK = "CREATE TABLE stock (id INT PRIMARY KEY)"
_IDS = {"item": 1, "stock": 2}
_LAYOUTS: dict[str, list[tuple[int, bytes]]] = {
    "item": [(C.LONG, b""), (C.VARCHAR, b"\x50\0")],
    "stock": [(C.LONG, b"")],
}


@dataclass
class BinlogFile(Stream):
    """A stream whose rows can be decoded. `crc_at`: events whose checksum is broken."""

    broken: set[int] = field(default_factory=set)

    def insert(self, table: str, ids: Sequence[int], *, name: str = "n") -> None:
        self._change(23, table, [self._image(table, i, name) for i in ids])

    def delete(self, table: str, ids: Sequence[int], *, name: str = "n") -> None:
        self._change(25, table, [self._image(table, i, name) for i in ids])

    def _image(self, table: str, i: int, name: str) -> bytes:
        values = [struct.pack("<i", i)]
        if table == "item":
            values.append(bytes([len(name)]) + name.encode("utf-8", "surrogateescape"))
        return build.image(values)

    def _change(self, kind: int, table: str, images: list[bytes]) -> None:
        layout = _LAYOUTS[table]
        table_map = build.table_map(layout, table_id=_IDS[table], schema="shop", table=table)
        self.add(EventType.TABLE_MAP, table_map[19:])
        self.add(EventType(kind), build.rows(kind, len(layout), images, table_id=_IDS[table])[19:])

    def inserts(self, table: str, ids: Sequence[int]) -> None:
        """A transaction."""
        self.begin()
        self.insert(table, ids)
        self.commit()

    def bytes(self) -> bytes:
        events = [raw[:-1] + bytes([raw[-1] ^ 1]) if i in self.broken else raw for i, raw in enumerate(self.events)]
        return MAGIC + self.fde + b"".join(events)

    def write(self, directory: Path, name: str = "bin.000001") -> Path:
        path = directory / name
        path.write_bytes(self.bytes())
        return path


def decoded(
    *paths: Path, events_bytes_max: int = 1 << 20, read_bytes: int = 1 << 20, **options: Any
) -> list[dict[str, Any]]:
    """All lines of the files."""
    out = io.BytesIO()
    reader = FileReader(GivenFiles(paths, read_bytes=read_bytes), events_bytes_max=events_bytes_max, **options)
    lines = JsonLines(out.write)
    error = None
    try:
        for item in reader.read():
            if isinstance(item, Seen):
                lines.tell(item)
            else:
                lines.write(item)
    except Exception as raised:
        error = raised
    found = [json.loads(line) for line in out.getvalue().decode().split("\n") if line]
    if error is not None:
        error.lines = found  # type: ignore[attr-defined]
        raise error
    return found


def short(lines: list[dict[str, Any]]) -> list[str]:
    """`insert item 1`, `rollback`, … for each line."""
    return [
        f"{line['op']} {line['table']} {next(iter((line['after'] or line['before']).values()))}"
        if "table" in line
        else line["op"]
        for line in lines
    ]

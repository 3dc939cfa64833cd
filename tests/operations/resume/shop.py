"""A log with parked tables, made of a small binlog: tables of integers whose table maps carry no names."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from penstock.binlog.types import EventType
from penstock.capture.loop import Capture
from penstock.log import LogReader
from penstock.operations.config.model import Config
from penstock.operations.verify.log_replay import LogReplay
from tests.capture.streams import Stream, StreamSource

CREATE = "CREATE TABLE orders (id int primary key, v int)"
PARK = "ALTER TABLE orders FROBNICATE w"
DEFINITION = (
    "CREATE TABLE `orders` (`id` int(11) NOT NULL, `v` int(11), `w` int(11), PRIMARY KEY (`id`)) CHARSET=utf8mb4"
)


class Shop(Stream):
    """A stream with rows of any table of the database `shop`."""

    def insert(self, table: str, *rows: tuple[int, ...], table_id: int = 70) -> None:
        """One transaction. A table id stands for one shape, as a server's does."""
        columns = len(rows[0])
        identity = (table_id + columns).to_bytes(6, "little")
        name = table.encode()
        mapped = identity + b"\1\0\4shop\0" + bytes([len(name)]) + name + b"\0" + bytes([columns]) + b"\3" * columns
        self.begin()
        self.add(EventType.TABLE_MAP, mapped + b"\0\xff")
        images = b"".join(b"\0" + struct.pack(f"<{columns}i", *row) for row in rows)
        self.add(EventType.WRITE_ROWS_V1, identity + b"\1\0" + bytes([columns]) + b"\xff" + images)
        self.commit()


def capture(state_dir: Path, stream: Stream, **options: Any) -> list[dict[str, Any]]:
    """What the capture process says on its way to the stream's end."""
    from penstock.log import Log

    said: list[dict[str, Any]] = []
    log = Log.open(state_dir / "log")
    try:
        assert Capture(log, StreamSource(stream), report=said.append, **options).run(until_now=True)
    finally:
        log.close()
    return said


def config_of(state_dir: Path, **source: Any) -> Config:
    value = {"type": "binlog-files", "path": str(state_dir), **source}
    return Config.model_validate(
        {
            "state_dir": str(state_dir),
            "source": value,
            "sinks": {"lake": {"url": f"file://{state_dir}/lake", "format": "parquet"}},
        }
    )


def replayed(state_dir: Path) -> tuple[dict[str, list[dict[str, Any]]], LogReplay]:
    """The rows of each table by column names, as whoever delivers them reads them; and what was held back."""
    reader = LogReader.open(state_dir / "log")
    replay = LogReplay(reader, reader.end())
    rows: dict[str, list[dict[str, Any]]] = {}
    for batch, _ in replay.changes():
        names = [column.name for column in batch.table.columns]
        columns = [column.to_pylist() for column in batch.after]
        rows.setdefault(batch.table.name, []).extend(
            dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)
        )
    reader.close()
    return rows, replay


def file_with(directory: Path, text: str) -> Path:
    path = directory / "definition.sql"
    path.write_text(text)
    return path

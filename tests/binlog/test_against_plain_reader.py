"""The vectorised decoder against one that reads value by value: on generated rows of every type, and on the corpus."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.binlog.bodies import FormatDescription, parse_format_description
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import split_events
from penstock.binlog.expand import expand_events
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import ColumnType as C
from penstock.binlog.types import EventType as E
from penstock.errors import BadInput
from tests.binlog.build import FDE, decimal, image, msb_bits, rows, table_map, time2, tlv
from tests.binlog.plain_reader import Row, read_rows
from tests.binlog.test_presence import bitmap, shown
from tests.binlog.test_public_corpus import PUBLIC, _bytes, _files
from tests.support import components
from tests.support.budget import chosen_seed, scaled

Choice = random.Random


def _number(width: int) -> Callable[[Choice], bytes]:
    return lambda choice: choice.choice([bytes(width), b"\xff" * width, choice.randbytes(width)])


def _text(width: int, codec: str) -> Callable[[Choice], bytes]:
    def make(choice: Choice) -> bytes:
        raw = "".join(choice.choice("aé ÿ中"[: 4 if codec == "latin-1" else 5]) for _ in range(choice.randrange(9)))
        return len(raw.encode(codec)).to_bytes(width, "little") + raw.encode(codec)

    return make


def _bytes_of(width: int, size_max: int) -> Callable[[Choice], bytes]:
    def make(choice: Choice) -> bytes:
        raw = choice.randbytes(choice.randrange(size_max)).rstrip(b"\0")
        return len(raw).to_bytes(width, "little") + raw

    return make


def _decimal(precision: int, scale: int) -> Callable[[Choice], bytes]:
    def make(choice: Choice) -> bytes:
        digits = choice.randrange(10**precision)
        return decimal(
            Decimal((choice.randrange(2) if digits else 0, tuple(map(int, str(digits))), -scale)), precision, scale
        )

    return make


def _datetime(fsp: int) -> Callable[[Choice], bytes]:
    def make(choice: Choice) -> bytes:
        date = (choice.randrange(10_000) * 13 + choice.randrange(13)) << 22 | choice.randrange(32) << 17
        clock = choice.randrange(24) << 12 | choice.randrange(60) << 6 | choice.randrange(60)
        width = (fsp + 1) // 2
        return (0x8000000000 + (date | clock)).to_bytes(5, "big") + choice.randrange(100**width).to_bytes(width, "big")

    return make


def _time(fsp: int) -> Callable[[Choice], bytes]:
    unit = 10 ** (6 - fsp)
    return lambda choice: time2(choice.randrange(-3_020_399_000_000 // unit, 3_020_399_000_000 // unit) * unit, fsp)


# (type, meta, whether it counts as a number, its charset among those of text, how a value is made)
COLUMNS: list[tuple[int, bytes, bool, int | None, Callable[[Choice], bytes]]] = [
    (C.TINY, b"", True, None, _number(1)),
    (C.SHORT, b"", True, None, _number(2)),
    (C.INT24, b"", True, None, _number(3)),
    (C.LONG, b"", True, None, _number(4)),
    (C.LONGLONG, b"", True, None, _number(8)),
    (C.FLOAT, b"\4", True, None, lambda choice: struct.pack("<f", choice.choice([-0.0, 1e-38, choice.random()]))),
    (C.DOUBLE, b"\x08", True, None, lambda choice: struct.pack("<d", choice.choice([-0.0, 5e-324, choice.random()]))),
    (C.YEAR, b"", True, None, _number(1)),
    *((C.NEWDECIMAL, bytes(shape), True, None, _decimal(*shape)) for shape in ((10, 2), (9, 9), (18, 0), (19, 4), (38, 30), (65, 30), (39, 0))),
    (C.STRING, bytes([C.ENUM, 2]), False, None, _number(2)),
    (C.STRING, bytes([C.SET, 8]), False, None, _number(8)),
    (C.BIT, b"\0\x08", False, None, _number(8)),
    (C.BIT, b"\1\1", False, None, lambda choice: bytes([choice.randrange(2), choice.randrange(256)])),
    (C.DATE, b"", False, None, _number(3)),
    *((C.DATETIME2, bytes([fsp]), False, None, _datetime(fsp)) for fsp in (0, 1, 4, 6)),
    *((C.TIME2, bytes([fsp]), False, None, _time(fsp)) for fsp in (0, 1, 3, 6)),
    (C.TIMESTAMP2, b"\3", False, None, lambda choice: choice.randbytes(4) + struct.pack(">H", choice.randrange(10_000))),
    (C.TIMESTAMP, b"", False, None, _number(4)),
    (C.TIME, b"", False, None, lambda choice: (choice.choice([-1, 1]) * (choice.randrange(839) * 10_000 + 5959)).to_bytes(3, "little", signed=True)),
    (C.DATETIME, b"", False, None, lambda choice: struct.pack("<q", choice.randrange(10_000) * 10**10 + 1231235959)),
    (C.VARCHAR, struct.pack("<H", 80), False, 45, _text(1, "utf-8")),
    (C.VARCHAR, struct.pack("<H", 400), False, 8, _text(2, "latin-1")),
    (C.VARCHAR, struct.pack("<H", 80), False, 28, lambda choice: choice.choice([b"\0", b"\5a\xd6\xd0\xce\xc4"])),
    (C.STRING, bytes([C.STRING, 40]), False, 45, _text(1, "utf-8")),
    (C.STRING, bytes([C.STRING, 12]), False, 63, _bytes_of(1, 12)),
    (C.BLOB, b"\1", False, 63, _bytes_of(1, 200)),
    (C.BLOB, b"\3", False, 45, _text(3, "utf-8")),
    (C.GEOMETRY, b"\4", False, 63, _bytes_of(4, 50)),
    (C.VECTOR, b"\4", False, 63, lambda choice: struct.pack("<I2f", 8, choice.random(), 1.0)),
    (C.JSON, b"\4", False, None, lambda choice: struct.pack("<I", 13) + b"\0\1\0\x0c\0\x0b\0\1\0\5\1\0a"),
]  # fmt: skip


def decoded(buffer: Any, fde: FormatDescription) -> tuple[dict[int, list[Row]], dict[int, Any]]:
    """The rows of each event of the buffer, and the table map of each."""
    events = split_events(buffer) if isinstance(buffer, bytes) else buffer.events
    data = buffer if isinstance(buffer, bytes) else buffer.buffer
    found: dict[int, list[Row]] = {}
    maps = {}
    for layout, chosen in group_rows(data, events, fde).groups():
        start = int(events.offset[layout])
        table = parse_table_map(bytes(data[start : start + int(events.size[layout])]), fde)
        for batch in decode_rows(data, events, chosen, table, fde):
            for event, row in zip(batch.event.tolist(), shown(batch), strict=True):
                found.setdefault(event, []).append(row)
        maps.update(dict.fromkeys(chosen.tolist(), table))
    return found, maps


def compare(found: list[Row], wanted: list[Row]) -> None:
    """NaN and -0.0 by their bits: by what they are printed as."""
    assert repr(found) == repr(wanted)


def test_generated_rows_of_every_type() -> None:
    choice = random.Random(chosen_seed())
    for _ in range(scaled(30)):
        columns = choice.sample(COLUMNS, choice.randrange(1, len(COLUMNS)))
        charsets = bytes(charset for *_, charset, _ in columns if charset is not None)
        signs = msb_bits([choice.random() < 0.5 for column in columns if column[2]])
        buffer = table_map([column[:2] for column in columns], metadata=tlv(1, signs) + tlv(3, charsets))
        for kind in choice.choices([23, 24, 25, 30, 31, 32], k=6):
            sides = []
            for _ in range(2):
                some = sorted(choice.sample(range(len(columns)), choice.randrange(1, len(columns) + 1)))
                sides.append(some if choice.random() < 0.3 else list(range(len(columns))))
            images = []
            for _ in range(choice.randrange(1, 20)):
                for side in sides[: 2 if kind in (24, 31) else 1]:
                    images.append(image([None if choice.random() < 0.2 else columns[c][4](choice) for c in side]))
            present = [bitmap(len(columns), side) for side in sides]
            buffer += rows(kind, len(columns), images, present=(present[0], present[1]))
        events = split_events(buffer)
        found, maps = decoded(buffer, FDE)
        for event in range(1, len(events)):
            start = int(events.offset[event])
            raw = buffer[start : start + int(events.size[event])]
            compare(found[event], read_rows(raw, maps[event], crc=False))


def corpus_files() -> list[Path]:
    if not components.CORPUS.is_dir():
        return []
    files = [PUBLIC / row["file"] for row in _files()]
    return [*files, *sorted((components.CORPUS / "mariadb-10.11").glob("*.binlog"))]


@pytest.mark.corpus
@pytest.mark.skipif(not components.CORPUS.is_dir(), reason=components.CORPUS_MISSING)
def test_the_corpus() -> None:
    """Every row event of every file that can be read whole: without a schema, so signed, and text as bytes."""
    compared = 0
    for path in corpus_files():
        data = _bytes(path)
        try:
            outer = split_events(data, start=4)
            fde = parse_format_description(data[4 : 4 + int(outer.size[0])])
            expanded = expand_events(data, outer, fde)
            found, maps = decoded(expanded, fde)
        except (BadInput, BadEvent, IndexError):
            continue  # what is refused, tests/binlog/test_public_corpus.py says file by file
        for event, table in maps.items():
            if expanded.events.type[event] == E.PARTIAL_UPDATE_ROWS or any(c.type in (140, 141) for c in table.columns):
                continue
            start = int(expanded.events.offset[event])
            raw = expanded.buffer[start : start + int(expanded.events.size[event])].tobytes()
            compare(found[event], read_rows(raw, table, crc=bool(fde.checksum)))
            compared += len(found[event])
    assert compared > 5000

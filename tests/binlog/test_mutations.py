"""Damaged events of every kind: each ends in values or in a typed error that names its place; cheaply, and never in a
crash, an endless loop, or memory without a bound."""

from __future__ import annotations

import random
import resource
import struct
import time
import zlib
from dataclasses import replace

from penstock.binlog.dump import dump_events
from penstock.binlog.events import split_events
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import MAGIC
from penstock.binlog.types import ColumnType as C
from penstock.binlog.types import EventType as E
from penstock.errors import BadInput
from tests.binlog.build import FDE, POST_HEADER, event, image, rows, table_map, tlv
from tests.binlog.json.test_diff import DOCUMENT, KEY, REPLACE, SEVEN, diff, partial, value
from tests.binlog.test_damage import COLUMNS, METADATA, _row
from tests.binlog.test_expand import compressed, payload
from tests.support.budget import MUTATED_EVENTS, chosen_seed

FORMAT = event(15, struct.pack("<H50sIB", 4, b"10.11.6-MariaDB", 0, 19) + POST_HEADER + b"\0" * 150 + b"\0" * 5)
EVENT_SECONDS_MAX = 2.0
GROWTH_MIB_MAX = 400
PLAIN_MAP = table_map(COLUMNS, metadata=METADATA)
JSON_MAP = table_map([(C.LONG, b""), (C.JSON, b"\4"), (C.TINY, b""), (C.JSON, b"\4")])
# Text of two and three bytes a character, and in Unicode's other forms.
CHARSETS = {
    12: b"\x8f\xb0\xa1\xc6\xfc",
    13: b"\x93\xfa\xb1",
    28: b"\xd6\xd0a",
    35: b"\0a\xd8\x3d",
    60: b"\0\0\0a",
    11: b"a\xe9",
}
TEXT_MAP = table_map([(C.VARCHAR, struct.pack("<H", 200))] * len(CHARSETS), metadata=tlv(3, bytes(CHARSETS)))
# Types that only a schema knows: MariaDB's addresses, and its old temporal types with digits of a second.
KNOWN = [("inet4", 4), ("inet6", 16), ("uuid", 16), ("", 3), ("", 6), ("", 1)]
KNOWN_MAP = table_map(
    [(C.STRING, bytes([C.STRING, size])) for _, size in KNOWN[:3]]
    + [(C.TIME, b""), (C.DATETIME, b""), (C.TIMESTAMP, b"")]
)
OLD_MAP = table_map(
    [
        (C.TIME, b""),
        (C.DATETIME, b""),
        (C.TIMESTAMP, b""),
        (C.VARCHAR_COMPRESSED, struct.pack("<H", 300)),
        (C.GEOMETRY, b"\4"),
    ]
)


def _subjects() -> list[tuple[bytes, bytes]]:
    """(table maps that stay as they are, the event that is damaged)."""
    n = len(COLUMNS)
    inserts = rows(30, n, [_row(i) for i in range(3)])
    before: list[bytes | None] = [KEY, value(DOCUMENT), b"\1", value(DOCUMENT)]
    one = value(diff(REPLACE, "$.a", SEVEN))
    old = image(
        [b"\1\2\0", struct.pack("<q", 20240229123456), b"\1\0\0\0", b"\6\0\0short", struct.pack("<I", 3) + b"geo"]
    )
    squeezed = b"\x89\x64" + zlib.compress(b"x" * 100, wbits=-15)
    small = image([None, None, None, struct.pack("<H", len(squeezed)) + squeezed, None])
    gtid_tagged = bytes.fromhex(
        "027800000002aaee25020804650222c503c502e1029cc10311035502dead03040c060a6d7974616708000a040c7f1cf3b814244a0610a10412430f0b"
    )
    texts = image([bytes([len(raw)]) + raw for raw in CHARSETS.values()])
    known = image(
        [
            b"\4\1\2\3\4",
            b"\3\1\2\3",
            b"\x10" + bytes(range(16)),
            (3_020_400_123).to_bytes(5, "big"),
            b"\x01" + bytes(7),
            b"\1\0\0\0\x05",
        ]
    )
    return [
        (TEXT_MAP, rows(30, len(CHARSETS), [texts, texts])),
        (KNOWN_MAP, rows(30, len(KNOWN), [known, known])),
        (b"", PLAIN_MAP + inserts),
        (PLAIN_MAP, inserts),
        (PLAIN_MAP, rows(24, n, [_row(1), _row(2)])),
        (PLAIN_MAP, rows(32, n, [_row(4)])),
        (PLAIN_MAP, rows(31, n, [image([struct.pack("<i", 1)]), image([None, b"\1\xff"])], present=(b"\1\0", b"\2\1"))),
        (JSON_MAP, rows(39, 4, [image(before), partial(1, [KEY, one, b"\2", value(DOCUMENT)])])),
        (OLD_MAP, rows(30, 5, [old, small])),
        (PLAIN_MAP, compressed(E.WRITE_ROWS_COMPRESSED, inserts, 6 + 2 + 2 + 1 + 2)),
        (b"", payload(PLAIN_MAP + inserts)),
        (b"", payload(PLAIN_MAP + inserts, algorithm=255)),
        (b"", event(E.QUERY, struct.pack("<IIBHH", 9, 0, 2, 0, 3) + b"\x08\x2d\0" + b"db\0BEGIN")),
        (b"", event(E.GTID, bytes(25) + b"\2" + bytes(40))),
        (b"", event(E.GTID_TAGGED, gtid_tagged)),
        (
            b"",
            event(E.MARIADB_GTID, struct.pack("<QIB", 5, 0, 0x42) + bytes(8) + struct.pack("<IBB", 1, 2, 2) + b"abcd"),
        ),
        (b"", event(E.XA_PREPARE, struct.pack("<BIII", 0, 1, 2, 2) + b"abcd")),
        (b"", event(E.ROTATE, bytes(8) + b"bin.000002")),
        (b"", FORMAT),
    ]


def _damaged(choice: random.Random, good: bytes) -> bytes:
    raw = bytearray(good)
    for _ in range(choice.choice((1, 1, 2, 4))):
        at = choice.randrange(19 if choice.random() < 0.9 else 0, len(raw))
        raw[at] = choice.choice((choice.randrange(256), 0, 0xFF, raw[at] ^ 1 << choice.randrange(8)))
    if choice.random() < 0.1:
        del raw[choice.randrange(19, len(raw)) :]
    elif choice.random() < 0.1:
        raw += choice.randbytes(choice.randrange(1, 40))
    if choice.random() < 0.95 and bytes(good).count(PLAIN_MAP) == 0:
        raw[9:13] = struct.pack("<I", len(raw))  # its size is right, so that all of it is looked at
    return bytes(raw)


def _decode(buffer: bytes) -> int:
    if buffer.startswith(KNOWN_MAP, len(MAGIC + FORMAT)):
        return _decode_known(buffer[len(MAGIC + FORMAT) :])
    return sum(len(found.get("rows", ())) for found in dump_events(buffer))


def _decode_known(buffer: bytes) -> int:
    events = split_events(buffer)
    count = 0
    for layout, chosen in group_rows(buffer, events, FDE).groups():
        start = int(events.offset[layout])
        table = parse_table_map(buffer[start : start + int(events.size[layout])], FDE)
        columns = tuple(
            replace(column, length=size, form=form or None)
            for column, (form, size) in zip(table.columns, KNOWN, strict=True)
        )
        for decoded in decode_rows(buffer, events, chosen, replace(table, columns=columns), FDE):
            for array in decoded.after:
                array.validate(full=True)
            count += len(decoded)
    return count


def test_damaged_events() -> None:
    seed = chosen_seed()
    choice = random.Random(seed)
    subjects = _subjects()
    for maps, good in subjects:
        _decode(MAGIC + FORMAT + maps + good)  # what is good is read, and compiled
    outcomes = {"read": 0, "refused": 0}
    usual = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(MUTATED_EVENTS):
        maps, good = choice.choice(subjects)
        buffer = MAGIC + FORMAT + maps + _damaged(choice, good)
        began = time.thread_time()
        try:
            _decode(buffer)
            outcomes["read"] += 1
        except BadInput as error:
            assert "offset" in str(error) or "column" in str(error), str(error)
            outcomes["refused"] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} for {buffer.hex()}") from error
        seconds = time.thread_time() - began
        assert seconds <= EVENT_SECONDS_MAX, f"seed {seed}: {seconds:.1f} s for {buffer.hex()}"
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - usual) / 1024
    assert growth <= GROWTH_MIB_MAX, f"seed {seed}: {growth:.0f} MiB more than before"
    assert min(outcomes.values()) > MUTATED_EVENTS // 20, outcomes

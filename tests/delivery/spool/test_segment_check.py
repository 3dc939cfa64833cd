"""Looking into segments from outside: every byte is checked, what is unfinished is no damage, nothing is changed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.delivery.spool.segment_check import CHUNK_BYTES, RecordSeen, SegmentSeen, check_segment
from penstock.delivery.spool.segment_format import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    SegmentName,
    file_header,
    parse_name,
    record_header,
)
from penstock.files import REAL_FILES
from penstock.files.memory import MemoryFiles
from tests.delivery.spool.world import DIRECTORY, INCARNATION, A, B, body_of, data, settle, spool_on

NAME = SegmentName(3, 7, INCARNATION)
BODIES = [(A, body_of(A, 1, 100)), (B, body_of(B, 2, 0)), (A, body_of(A, 3, 3000))]
OFFSETS = [FILE_HEADER_BYTES]
for _, each in BODIES:
    OFFSETS.append(OFFSETS[-1] + RECORD_HEADER_BYTES + len(each))


def whole() -> bytearray:
    parts = [file_header(3, bytes.fromhex(INCARNATION))]
    for owner, body in BODIES:
        parts += [record_header(bytes.fromhex(owner), body), body]
    return bytearray(b"".join(parts))


def look(tmp_path: Path, content: bytes, into: list[RecordSeen] | None = None) -> SegmentSeen:
    path = tmp_path / str(NAME)
    path.write_bytes(content)
    parsed = parse_name(path.name)
    assert parsed is not None
    seen = check_segment(REAL_FILES, path, parsed, into)
    assert path.read_bytes() == content
    return seen


def test_a_whole_segment(tmp_path: Path) -> None:
    records: list[RecordSeen] = []
    seen = look(tmp_path, whole(), records)
    assert (seen.incarnation, seen.records, seen.payload_bytes) == (INCARNATION, 3, 3100)
    assert (seen.damage, seen.unfinished_bytes) == ([], 0)
    shares = {owner: (share.records, share.bytes) for owner, share in seen.dispatchers.items()}
    assert shares == {A: (2, 3100), B: (1, 0)}
    assert [one.offset for one in records] == OFFSETS[:-1] and not any(one.damage for one in records)


def test_a_file_that_ends_anywhere_is_unfinished_and_not_damaged(tmp_path: Path) -> None:
    content = whole()
    for end in range(len(content)):
        seen = look(tmp_path, content[:end])
        assert not seen.damage, end
        complete = [offset for offset in OFFSETS if offset <= end]
        assert seen.records == max(0, len(complete) - 1)
        assert seen.unfinished_bytes == end - (complete[-1] if complete else 0)


def test_every_flipped_bit_is_found_and_the_other_records_are_still_read(tmp_path: Path) -> None:
    content = whole()
    for at in range(0, len(content), 7):
        broken = bytearray(content)
        broken[at] ^= 1 << random.Random(at).randrange(8)
        seen = look(tmp_path, broken)
        if at < FILE_HEADER_BYTES:
            if seen.name.incarnation in seen.incarnation and at >= 8 + 4:
                continue  # beyond the eight digits that the name repeats there is nothing to compare with
            assert [one.offset for one in seen.damage] == [0] and seen.records == 3, at
            continue
        number = max(i for i, offset in enumerate(OFFSETS) if offset <= at)
        last = number == len(BODIES) - 1
        in_length = OFFSETS[number] + 4 <= at < OFFSETS[number] + 8
        if last and in_length and not seen.damage:
            assert seen.unfinished_bytes == len(content) - OFFSETS[number]  # looks like a record that is being written
        else:
            assert [one.offset for one in seen.damage] == [OFFSETS[number]], at
        assert seen.records == 2, at


def test_damage_that_is_longer_than_one_read(tmp_path: Path) -> None:
    big = body_of(A, 9, 2 * CHUNK_BYTES + 12345)
    content = bytearray(file_header(3, bytes.fromhex(INCARNATION)))
    content += record_header(bytes.fromhex(A), big) + big
    after = len(content)
    content += whole()[FILE_HEADER_BYTES:]
    content[FILE_HEADER_BYTES : FILE_HEADER_BYTES + 8] = bytes(
        8
    )  # the length too: the next record has to be looked for
    seen = look(tmp_path, content)
    assert [(one.offset, one.bytes) for one in seen.damage] == [(FILE_HEADER_BYTES, after - FILE_HEADER_BYTES)]
    assert seen.records == 3


def test_zeros_at_the_end_are_damage(tmp_path: Path) -> None:
    """Unlike a cut, which a kill leaves, they come from a power cut or a disk."""
    seen = look(tmp_path, whole() + bytes(64))
    assert [(one.offset, one.bytes) for one in seen.damage] == [(OFFSETS[-1], 64)]
    assert seen.records == 3


@pytest.mark.parametrize("items", [1, 300])
def test_what_a_spool_writes_is_read_as_it_was_written(items: int) -> None:
    files = MemoryFiles()
    spool = spool_on(files, memory_low_bytes=0)
    for number in range(items):
        owner = A if number % 3 else B
        spool.enqueue(owner, [data(number, dispatcher=owner, size=number * 10 + 10)])
    settle(spool)
    records = held = 0
    for name in files.list(DIRECTORY):
        parsed = parse_name(name)
        assert parsed is not None
        seen = check_segment(files, DIRECTORY / name, parsed)
        assert not seen.damage and not seen.unfinished_bytes
        records += seen.records
        held += seen.payload_bytes
    assert (records, held) == (items, sum(range(items + 1)) * 10)
    spool.close()

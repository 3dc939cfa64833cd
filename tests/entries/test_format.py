"""The entry format: what is encoded is parsed again, and bytes that are not an entry are named as such."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.entries.format import (
    TXN_DTYPE,
    BadEntry,
    EntryHeader,
    Flavour,
    Kind,
    Part,
    encode_entry,
    gtid_text,
    pack_gtid,
    parse_entry,
)


def _entry(lengths: list[int], source: str = "demo", files: tuple[str, ...] = ("bin.000001",)) -> bytes:
    transactions = np.zeros(len(lengths), TXN_DTYPE)
    transactions["length"] = lengths
    transactions["offset"] = np.cumsum([0, *lengths])[:-1] if lengths else []
    transactions["commit_ts"] = np.arange(len(lengths)) + (1 << 60)
    transactions["end_pos"] = 1 << 40
    transactions["kind"] = Kind.ROWS
    transactions["part"] = Part.WHOLE
    transactions["gtid"] = np.void(pack_gtid(7, 1, 42))
    header = EntryHeader(Flavour.MARIADB, True, source, files, b"fde bytes")
    return b"".join(bytes(part) for part in encode_entry(header, transactions, [b"x" * n for n in lengths]))


def test_a_record_is_80_bytes() -> None:
    assert TXN_DTYPE.itemsize == 80


@given(
    st.lists(st.integers(0, 300), max_size=20),
    st.text(max_size=20),
    st.lists(st.text(max_size=9), min_size=1, max_size=3),
)
def test_round_trip(lengths: list[int], source: str, files: list[str]) -> None:
    raw = _entry(lengths, source, tuple(files))
    parsed = parse_entry(raw)
    assert parsed.header == EntryHeader(Flavour.MARIADB, True, source, tuple(files), b"fde bytes")
    assert parsed.transactions["length"].tolist() == lengths
    assert parsed.transactions["commit_ts"].tolist() == [(1 << 60) + i for i in range(len(lengths))]
    assert parsed.events.tobytes() == b"x" * sum(lengths)
    assert not parsed.events.flags.owndata
    assert all(gtid_text(Flavour.MARIADB, bytes(g)) == "7-1-42" for g in parsed.transactions["gtid"])


def test_every_cut_and_every_tail_is_refused() -> None:
    raw = _entry([10, 20])
    for end in range(len(raw)):
        with pytest.raises(BadEntry):
            parse_entry(raw[:end])
    with pytest.raises(BadEntry, match="follow"):
        parse_entry(raw + b"\0")


def test_a_record_that_points_outside_is_refused() -> None:
    transactions = np.zeros(1, TXN_DTYPE)
    transactions["length"] = 5
    header = EntryHeader(Flavour.MYSQL, False, "s", ("f",), b"")
    with pytest.raises(BadEntry, match="outside"):
        parse_entry(b"".join(bytes(part) for part in encode_entry(header, transactions, [b"abcd"])))


def test_a_newer_version_is_refused_by_name() -> None:
    raw = bytearray(_entry([1]))
    raw[4] = 2
    with pytest.raises(BadEntry, match="version 2"):
        parse_entry(bytes(raw))


def test_mysql_gtid_text() -> None:
    raw = bytes(range(16)) + (5).to_bytes(8, "little")
    assert gtid_text(Flavour.MYSQL, raw) == "00010203-0405-0607-0809-0a0b0c0d0e0f:5"
    assert gtid_text(Flavour.MYSQL, bytes(24)) == ""

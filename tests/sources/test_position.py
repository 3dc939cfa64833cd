"""Positions: their order and their stored form."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import Corruption
from penstock.sources.position import OpenTransaction, SourcePosition, file_number


def test_positions_are_ordered_as_they_were_read_not_by_name() -> None:
    before = SourcePosition("bin.000900", 4, turn=6)
    assert SourcePosition("bin.000001", 4, turn=7).order > before.order  # RESET MASTER, or a restored server
    assert SourcePosition("other.000001", 4, epoch=1).order > before.order  # another server took over
    assert SourcePosition("bin.000900", 5, turn=6).order > before.order
    assert file_number("mysql-bin.000042") == 42


def test_a_target_is_reached_by_offset_by_gtid_or_by_number() -> None:
    target = SourcePosition("bin.000009", 100, gtid="0-1-20", source="s")
    assert SourcePosition("bin.000009", 100, source="s").reaches(target)
    assert not SourcePosition("bin.000009", 99, gtid="0-1-99", source="s").reaches(target)
    assert SourcePosition("bin.000010", 4, source="s").reaches(target)
    assert SourcePosition("bin.1000000", 4, source="s").reaches(target)
    assert not SourcePosition("bin.000008", 400, source="s").reaches(target)
    assert not SourcePosition("bin.000010", 400, source="other").reaches(target)
    assert SourcePosition("x.000001", 4, gtid="0-2-20", source="other").reaches(target)
    assert not SourcePosition("x.000099", 4, gtid="0-2-19", source="other").reaches(target)
    # Files were given another name: their numbers say nothing, and without GTIDs nothing is reached yet.
    assert not SourcePosition("mysql-bin.000123", 4, source="s").reaches(target)
    # Without gtid_strict_mode MariaDB's numbers need not ascend: the order of the files counts.
    later = SourcePosition("bin.000007", 100, gtid="0-2-90", source="s")
    assert not SourcePosition("bin.000006", 900, gtid="0-1-100", source="s").reaches(later)
    assert SourcePosition("bin.000008", 4, gtid="0-2-90", source="s").reaches(
        SourcePosition("bin.000007", 100, gtid="0-1-100", source="s")
    )
    # Asked by GTID, a server leaves out what the log has: offsets say nothing of what is still to come.
    asked = SourcePosition("bin.000009", 50, gtid="0-1-100", source="s", by_gtid=True)
    assert asked.reaches(replace(target, gtid="0-1-100")) and not asked.reaches(replace(target, gtid="0-1-101"))


def test_a_position_beyond_the_end_of_the_source_is_told() -> None:
    end = SourcePosition("bin.000003", 100, source="s")
    assert SourcePosition("bin.000007", 4, source="s").is_beyond(end)
    assert SourcePosition("bin.000003", 101, source="s").is_beyond(end)
    assert not SourcePosition("bin.000003", 100, source="s").is_beyond(end)
    assert not SourcePosition("bin.000002", 900, source="s").is_beyond(end)
    assert not SourcePosition("bin.000007", 4, source="another").is_beyond(end)
    assert not SourcePosition("bin.000007", 4, source="s", by_gtid=True).is_beyond(end)


def test_json_round_trip_and_bad_json() -> None:
    position = SourcePosition("bin.000001", 1 << 40, "0-1-42", 7, "mariadb:1", 2, 3)
    assert SourcePosition.from_json(position.to_json()) == position
    opened = OpenTransaction(1, "00", "f", 4, 3, 99, 10)
    assert OpenTransaction.from_json(opened.to_json()) == opened
    with pytest.raises(Corruption):
        SourcePosition.from_json(b"[1]")

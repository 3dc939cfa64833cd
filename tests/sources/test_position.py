"""Positions: their order and their stored form."""

from __future__ import annotations

import pytest

from penstock.errors import Corruption
from penstock.sources.position import OpenTransaction, SourcePosition, file_number


def test_files_are_ordered_by_number_not_by_name() -> None:
    assert SourcePosition("bin.1000000", 4).order > SourcePosition("bin.999999", 900).order
    assert file_number("mysql-bin.000042") == 42
    assert SourcePosition("", 0).order < SourcePosition("bin.000001", 4).order


def test_json_round_trip_and_bad_json() -> None:
    position = SourcePosition("bin.000001", 1 << 40, "0-1-42", 7, "mariadb:1", 2)
    assert SourcePosition.from_json(position.to_json()) == position
    opened = OpenTransaction(1, "00", "f", 4, 3, 99, 10)
    assert OpenTransaction.from_json(opened.to_json()) == opened
    with pytest.raises(Corruption):
        SourcePosition.from_json(b"[1]")

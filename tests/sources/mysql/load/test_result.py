"""A result set that comes in pieces of any size."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.sources.mysql.load import result as result_module
from penstock.sources.mysql.load.result import Space, select

_END = b"\x05\x00\x00\x01\xfe\x00\x00\x02\x00"


class _Head:
    def read_length_encoded_integer(self) -> int:
        return 1


class _Server:
    """What `select` uses of a connection. The socket gives one of `pieces` for each receive."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = list(pieces)
        self._rfile = self
        self.raw = self
        self._next_seq_id = 1

    def _execute_command(self, command: int, sql: bytes) -> None: ...

    def _read_packet(self) -> _Head:
        return _Head()

    def read1(self, size: int) -> bytes:
        assert len(self._pieces[0]) <= size
        return self._pieces.pop(0)

    def readinto(self, space: memoryview) -> int:
        piece = self._pieces.pop(0)
        space[: len(piece)] = piece
        return len(piece)


def _row(value: bytes) -> bytes:
    payload = bytes([len(value)]) + value
    return len(payload).to_bytes(3, "little") + b"\x01" + payload


def test_small_pieces_are_waited_for_and_large_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr(result_module.time, "sleep", paused.append)
    rows = [_row(b"%d" % number + b"x" * 90) for number in range(10_000)]
    large = b"".join(rows)
    first, few = large[:100], large[100:20_000]
    pieces = [first, few, large[20_000:300_000], large[300_000:600_000], large[600_000:], _END]
    server: Any = _Server(pieces)
    found = select(server, "SELECT 1", 1 << 30, Space())
    assert found.whole
    assert found.count == len(rows)
    assert [found.columns[0].text(row) for row in (0, 9_999)] == [b"0" + b"x" * 90, b"9999" + b"x" * 90]
    assert paused == [result_module._GATHER_SECONDS]  # after the few bytes, and before nothing else


def test_a_result_in_one_piece_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr(result_module.time, "sleep", paused.append)
    server: Any = _Server([_row(b"1") + _row(b"2") + _END])
    assert select(server, "SELECT 1", 1 << 30, Space()).count == 2
    assert not paused

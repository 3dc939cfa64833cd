"""Events out of packets: in pieces of any size, of any length up to the cap, in linear time."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.binlog.errors import BadEvent
from penstock.binlog.types import EVENT_BYTES_MAX
from penstock.errors import Unavailable
from penstock.sources.mysql import source as source_module
from penstock.sources.mysql.packets import NEED_MORE, NOT_AN_EVENT, TOO_LARGE, unpack
from penstock.sources.mysql.source import READ_BYTES, ServerSource
from penstock.sources.position import SourcePosition
from penstock.sources.settings import ServerSettings
from tests.support.budget import chosen_seed

LENGTH_MAX = 0xFFFFFF


def event(size: int, kind: int = 30) -> bytes:
    return struct.pack("<IBIIIH", 1, kind, 1, size, 0, 0) + b"\0" * (size - 19)


def packets(payload: bytes) -> bytes:
    out, at, sequence = b"", 0, 0
    while True:
        part = payload[at : at + LENGTH_MAX]
        out += struct.pack("<I", len(part))[:3] + bytes([sequence & 255]) + part
        at, sequence = at + len(part), sequence + 1
        if len(part) < LENGTH_MAX:
            return out


def taken(raw: bytes) -> tuple[int, bytes, int]:
    events = np.empty(len(raw), np.uint8)
    consumed, made, why = unpack(np.frombuffer(raw, np.uint8), len(raw), events)
    return consumed, events[:made].tobytes(), why


def test_whole_events_are_taken_from_any_cut() -> None:
    whole = [event(size) for size in (19, 40, 300)]
    raw = b"".join(packets(b"\0" + one) for one in whole)
    ends = np.cumsum([len(one) + 5 for one in whole]).tolist()
    for cut in range(len(raw) + 1):
        done = sum(end <= cut for end in ends)
        assert taken(raw[:cut]) == (([0, *ends])[done], b"".join(whole[:done]), NEED_MORE)


def test_a_packet_that_is_no_event_is_left_where_it_is() -> None:
    one = packets(b"\0" + event(40))
    assert taken(one + packets(b"\xff\x15\x04#HY000no")) == (len(one), event(40), NOT_AN_EVENT)
    assert taken(one + packets(b"")) == (len(one), event(40), NOT_AN_EVENT)
    assert taken(one + packets(b"\xfe")) == (len(one), event(40), NOT_AN_EVENT)


@pytest.mark.parametrize("size", [LENGTH_MAX - 1, LENGTH_MAX, 2 * LENGTH_MAX - 1, 2 * LENGTH_MAX + 5])
def test_a_payload_that_continues_in_the_next_packet(size: int) -> None:
    raw = packets(b"\0" + event(size))
    assert taken(raw) == (len(raw), event(size), NEED_MORE)
    assert taken(raw[:-1]) == (0, b"", NEED_MORE)


def test_an_event_above_the_cap_is_refused_by_its_header() -> None:
    head = struct.pack("<IBIIIH", 1, 30, 1, EVENT_BYTES_MAX + 1, 0, 0)
    assert taken(b"\xff\xff\xff\0\0" + head) == (0, b"", TOO_LARGE)


def test_random_packets_end_in_a_verdict() -> None:
    seed = chosen_seed()
    choice = random.Random(seed)
    for _ in range(500):
        raw = choice.randbytes(choice.randrange(200))
        if choice.random() < 0.7:
            raw = packets(b"\0" + event(19 + choice.randrange(60))) + raw
        consumed, made, why = taken(raw)
        assert 0 <= consumed <= len(raw) and len(made) <= consumed, f"seed {seed}"
        assert why in (NEED_MORE, NOT_AN_EVENT, TOO_LARGE)


def _streamed(raw: bytes, tmp_path: Path) -> tuple[list[int], float]:
    """Sizes of the chunks until all of `raw` came, and the CPU seconds of the reading thread."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        theirs.sendall(raw)
        theirs.close()

    sender = threading.Thread(target=send)
    source = ServerSource(ServerSettings.model_validate({"type": "mariadb", "user": "x"}), tmp_path)
    sender.start()
    began = time.thread_time()
    sizes = []
    try:
        for chunk in source._chunks(SimpleNamespace(_sock=ours), SourcePosition("f", 4)):  # type: ignore[arg-type]
            if len(chunk.data):
                sizes.append(len(chunk.data))
                if sum(sizes) >= len(raw) - 4096:
                    break
        return sizes, time.thread_time() - began
    finally:
        ours.close()
        sender.join()


def test_a_large_event_is_streamed_in_linear_time(tmp_path: Path) -> None:
    _streamed(packets(b"\0" + event(5000)), tmp_path)
    small = _streamed(packets(b"\0" + event(2 * READ_BYTES)), tmp_path)[1]
    sizes, large = _streamed(packets(b"\0" + event(16 * READ_BYTES)) + packets(b"\0" + event(5000)), tmp_path)
    assert sum(sizes) == 16 * READ_BYTES + 5000
    assert large < 24 * max(0.02, small)  # 8 times as large; it was 64 times as slow


@pytest.mark.parametrize("reset", [False, True])
def test_what_came_before_the_end_counts(tmp_path: Path, reset: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(listener.getsockname())
    ours, _ = listener.accept()
    theirs.sendall(packets(b"\0" + event(300)) * 3 + b"\x20\0")
    if reset:  # a close sends a reset then, and not an end
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    source = ServerSource(ServerSettings.model_validate({"type": "mariadb", "user": "x"}), tmp_path)
    sizes: list[int] = []

    def read() -> None:
        for chunk in source._chunks(SimpleNamespace(_sock=ours), SourcePosition("f", 4)):  # type: ignore[arg-type]
            sizes.append(len(chunk.data))

    closer = threading.Timer(source_module._GATHER_SECONDS / 4, theirs.close)
    closer.start()
    with ours, listener, pytest.raises(Unavailable):
        read()
    closer.join()
    assert sum(sizes) == 900


def test_many_small_pieces_become_one_chunk(tmp_path: Path) -> None:
    raw = packets(b"\0" + event(300)) * 200
    ours, theirs = socket.socketpair()
    for at in range(0, len(raw), 1000):
        theirs.sendall(raw[at : at + 1000])
    source = ServerSource(ServerSettings.model_validate({"type": "mariadb", "user": "x"}), tmp_path)
    piecewise = SimpleNamespace(
        recv_into=lambda space: ours.recv_into(space, 1000), fileno=ours.fileno, settimeout=ours.settimeout
    )
    with ours, theirs:
        chunks = source._chunks(SimpleNamespace(_sock=piecewise), SourcePosition("f", 4))  # type: ignore[arg-type]
        assert len(next(chunks).data) > 300 * 20  # as many as came in the time; it was three


def test_an_event_above_the_cap_ends_the_stream_with_its_name(tmp_path: Path) -> None:
    raw = b"\xff\xff\xff\0\0" + struct.pack("<IBIIIH", 1, 30, 1, EVENT_BYTES_MAX + 1, 0, 0) + b"\0" * 9000
    with pytest.raises(BadEvent, match=r"WRITE_ROWS_V2.*EVENT_BYTES_MAX"):
        _streamed(raw, tmp_path)

"""Large bodies go between processes through a window; what is none is refused, and nothing of it stays open."""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import shared_memory, wire
from penstock.errors import BadInput, Unavailable
from penstock.files.socket_address import SocketDirectory
from penstock.shared_memory import WINDOW_BYTES, Window, copied, map_window, own_memory
from penstock.wire import Channel, Server, connect, socket_path
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has memory by descriptor")
LARGE = bytes(range(256)) * (4 << 12) + b"and an odd end"


@pytest.fixture
def served() -> Iterator[tuple[Path, list[memoryview]]]:
    """A server, and the bodies that it got."""
    bodies: list[memoryview] = []

    def take(arguments: dict[str, Any], body: memoryview) -> dict[str, Any]:
        bodies.append(body)
        return {"bytes": len(body), **arguments}

    with tempfile.TemporaryDirectory() as directory:
        path = socket_path(Path(directory), "delivery")
        server = Server(path, {"take": take})
        yield path, bodies
        server.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def windows() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:penstock")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_large_bodies_share_a_window_and_each_has_memory_of_its_own(
    served: tuple[Path, list[memoryview]], kind: Any
) -> None:
    path, bodies = served
    sent = [b"small", LARGE, b"", LARGE[::-1], LARGE[: wire._WINDOW_BYTES_MIN], b"x" * (WINDOW_BYTES + 1)]
    before = descriptors()
    with connect(path, timeout_seconds=10) as client:
        assert client.call("take", sent[0]) == {"bytes": 5}
        assert windows() == 0, "for whom it is worth nothing there is none"
        for number, body in enumerate(sent[1:]):
            assert client.call("take", kind(body), word=number) == {"bytes": len(body), "word": number}
            assert windows() == 2, "one mapping at either end, however many bodies"
    assert [body == expected for body, expected in zip(bodies, sent, strict=True)] == [True] * len(sent)
    wait_until(lambda: (descriptors(), windows()) == (before, 0), "the window to be given back")
    assert bodies[1] == LARGE, "and the bodies stay"


@pytest.mark.parametrize("failing", ["memfd_create", "seal", "map"])
def test_where_there_is_no_window_the_socket_has_the_bytes(
    served: tuple[Path, list[memoryview]], failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(24, "Too many open files")

    if failing == "memfd_create":
        monkeypatch.setattr(os, "memfd_create", refuse)
    elif failing == "seal":
        monkeypatch.setattr(fcntl, "fcntl", refuse)
    else:
        monkeypatch.setattr(os, "ftruncate", refuse)
    path, bodies = served
    before = descriptors()
    with connect(path, timeout_seconds=10) as client:
        assert client.call("take", LARGE) == {"bytes": len(LARGE)}
    assert (bodies[0] == LARGE, windows()) == (True, 0)
    wait_until(lambda: descriptors() <= before, "nothing to be left open")


def test_bodies_that_wait_take_no_open_files(served: tuple[Path, list[memoryview]]) -> None:
    path, bodies = served
    size = wire._WINDOW_BYTES_MIN
    with connect(path, timeout_seconds=10) as client:
        client.call("take", bytes(size))
        before = descriptors()
        for n in range(100):
            assert client.call("take", bytes([n]) * size) == {"bytes": size}
        assert descriptors() == before
    assert [bytes(body[:2]) for body in bodies[1:]] == [bytes([n, n]) for n in range(100)]


def test_a_client_that_gave_up_never_writes_into_what_the_server_may_still_read() -> None:
    """The server copies only once it comes to it: a body that were put over the one before would be taken for it."""
    with tempfile.TemporaryDirectory() as directory:
        path = socket_path(Path(directory), "late")
        with SocketDirectory(path.parent) as place, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place.address(path.name))
            listener.listen()
            with connect(path, timeout_seconds=0.05) as client:
                for body in (LARGE, LARGE[::-1]):
                    with pytest.raises(Unavailable):
                        client.call("take", body)
            for expected in (LARGE, LARGE[::-1]):
                message = Channel(listener.accept()[0]).receive()
                assert message is not None and message[1] == expected


def test_a_server_without_a_descriptor_for_a_window_says_so_and_serves_on(
    served: tuple[Path, list[memoryview]], caplog: pytest.LogCaptureFixture
) -> None:
    path, bodies = served
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    window = Window.make()
    assert window is not None
    with SocketDirectory(path.parent) as directory, socket.socket(socket.AF_UNIX) as ours:
        ours.settimeout(10)
        ours.connect(directory.address(path.name))
        channel = Channel(ours)
        channel.send({"op": "take"})
        assert channel.receive() is not None
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            frame = wire._FRAME.pack(13, len(LARGE) | wire._IN_WINDOW) + b'{"op":"take"}'
            socket.send_fds(ours, [frame], [window.descriptor])
            assert ours.recv(1) == b"", "the connection is closed"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    window.close()
    with connect(path, timeout_seconds=10) as client:
        assert client.call("take", LARGE) == {"bytes": len(LARGE)}
    assert [len(body) for body in bodies] == [0, len(LARGE)]
    assert "too many open files" in caplog.text


def test_nobody_can_take_bytes_of_a_window_away() -> None:
    window = Window.make()
    assert window is not None
    window.put(memoryview(LARGE))
    seen = map_window(window.descriptor)
    mine = copied(seen[: len(LARGE)])
    assert (mine == LARGE, mine.readonly, seen.readonly) == (True, True, True)
    window.put(memoryview(b"another"))
    assert (bytes(seen[:7]), mine == LARGE) == (b"another", True)
    for harm in (
        lambda: os.ftruncate(window.descriptor, 0),
        lambda: os.ftruncate(window.descriptor, WINDOW_BYTES + 1),
        lambda: os.pwrite(window.descriptor, b"x", 0),
        lambda: window._memory.obj.madvise(mmap.MADV_REMOVE, 0, mmap.PAGESIZE),  # type: ignore[attr-defined]
        lambda: fcntl.fcntl(window.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE),
    ):
        with pytest.raises(OSError, match="not permitted"):
            harm()
    assert bytes(seen[:7]) == b"another"
    window.close()


def test_memory_that_is_no_window_is_refused() -> None:
    every = shared_memory._SEALS
    for size, seals in ((WINDOW_BYTES, every & ~fcntl.F_SEAL_SHRINK), (WINDOW_BYTES - 1, every), (WINDOW_BYTES, 0)):
        other = os.memfd_create("other", os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(other, size)
            fcntl.fcntl(other, fcntl.F_ADD_SEALS, seals)
            with pytest.raises(BadInput, match="no window"):
                map_window(other)
        finally:
            os.close(other)
    with tempfile.TemporaryFile() as file, pytest.raises(BadInput, match="no window"):
        file.truncate(WINDOW_BYTES)
        map_window(file.fileno())


def test_a_message_that_lies_about_its_window_is_refused_and_leaves_nothing_open() -> None:
    before = descriptors()
    frame = wire._FRAME.pack(2, len(LARGE) | wire._IN_WINDOW)
    for sent in ([], [0], [0, 1]):  # none; one that is no such memory; more than one
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(ours, [frame], sent)
            ours.sendall(b"{}")
            with pytest.raises(BadInput, match="window"):
                Channel(theirs).receive()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(wire._FRAME.pack(2, (WINDOW_BYTES + 1) | wire._IN_WINDOW))
        with pytest.raises(BadInput, match="too large"):
            Channel(theirs).receive()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours).send({"op": "take"})
        message = theirs.recv(100)
        socket.send_fds(theirs, [message], [0])  # one that nobody asked for
        received = Channel(ours).receive()
        assert received is not None and received[0] == {"op": "take"} and not len(received[1])
    assert descriptors() == before


@pytest.mark.parametrize("size", [0, 1, (2 << 20) - 1, 2 << 20, (4 << 20) - 1, (5 << 20) + 7])
def test_own_memory_has_the_size_that_was_asked_for(size: int) -> None:
    memory = own_memory(size)
    assert memory.nbytes == size
    memory[:] = bytes([7]) * size
    assert bytes(memory[-1:]) == bytes([7])[:size]


def test_memory_is_used_again_only_once_its_last_view_is_gone() -> None:
    size = (6 << 20) - 5
    shared_memory._idle.clear()
    first = own_memory(size)
    first[:] = bytes([1]) * size
    part = first[size - 3 :]
    del first
    other = own_memory(size)
    other[:] = bytes([2]) * size
    assert (bytes(part), len(shared_memory._idle)) == (bytes([1]) * 3, 0), "a view is left"
    del part
    [memory] = shared_memory._idle
    longer = own_memory(9 << 20)
    assert list(shared_memory._idle) == [memory], "of another length"
    again = own_memory(size + 1)
    assert not shared_memory._idle and longer.nbytes == 9 << 20
    again[:] = bytes([3]) * (size + 1)
    assert (bytes(other[:3]), other.nbytes) == (bytes([2]) * 3, size)


def test_memory_that_waits_to_be_used_again_is_bounded() -> None:
    shared_memory._idle.clear()
    held = [own_memory(2 << 20) for _ in range(2 * shared_memory._IDLE_MAX)]
    large = own_memory(WINDOW_BYTES + 1)
    del held, large
    assert [len(memory) for memory in shared_memory._idle] == [2 << 20] * shared_memory._IDLE_MAX


def test_memory_that_is_used_again_takes_no_more_than_its_new_bytes() -> None:
    """The spool counts the bytes of a body: what a longer one has left behind them would be held, and not be counted."""

    def filled(size: int) -> list[memoryview]:
        held = [own_memory(size) for _ in range(shared_memory._IDLE_MAX)]
        for memory in held:
            memory[:] = bytes([1]) * size
        return held

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    shared_memory._idle.clear()
    filled((4 << 20) - 5)  # all of it is idle now
    before = resident()
    held = filled((2 << 20) + 5)
    assert not shared_memory._idle, "all of it is used again"
    assert before - resident() > shared_memory._IDLE_MAX * (3 << 19), "the rest of each went back to the system"
    assert {bytes(memory) for memory in held} == {bytes([1]) * ((2 << 20) + 5)}

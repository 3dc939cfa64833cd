"""Large bodies go between processes as sealed memory; what is not that is refused, and nothing of it stays open."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import shared_memory, wire
from penstock.errors import BadInput
from penstock.files.socket_address import SocketDirectory
from penstock.shared_memory import map_shared, share
from penstock.wire import Server, connect, socket_path
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


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:penstock")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_large_body_is_mapped_and_let_go_of(served: tuple[Path, list[memoryview]], kind: Any) -> None:
    path, bodies = served
    with connect(path, timeout_seconds=10) as client:
        assert client.call("take", b"small") == {"bytes": 5}
        before = descriptors()
        assert client.call("take", kind(LARGE), word="x") == {"bytes": len(LARGE), "word": "x"}
        assert client.call("take", b"", word="y") == {"bytes": 0, "word": "y"}, (
            "what follows is read from where it begins"
        )
        assert (descriptors(), mappings()) == (before, 1)
    assert [body == expected for body, expected in zip(bodies, (b"small", LARGE, b""), strict=True)] == [True] * 3
    assert bodies[1].readonly
    part = bodies[1][5:9]
    bodies.clear()
    assert (part == LARGE[5:9], mappings()) == (True, 1), "as long as a view of it is there"
    del part
    wait_until(
        lambda: (descriptors(), mappings()) == (before - 2, 0), "the memory to be given back"
    )  # and the connection


@pytest.mark.parametrize("failing", ["memfd_create", "seal", "map"])
def test_where_memory_cannot_be_shared_the_bytes_are_copied(
    served: tuple[Path, list[memoryview]], failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(24, "Too many open files")

    if failing == "memfd_create":
        monkeypatch.setattr(os, "memfd_create", refuse)
    elif failing == "seal":
        monkeypatch.setattr(shared_memory.fcntl, "fcntl", refuse)
    else:
        monkeypatch.setattr(pa, "memory_map", refuse)
    path, bodies = served
    before = descriptors()
    with connect(path, timeout_seconds=10) as client:
        assert client.call("take", LARGE) == {"bytes": len(LARGE)}
    assert (bodies[0] == LARGE, mappings()) == (True, 0)
    wait_until(lambda: descriptors() <= before, "nothing to be left open")


def test_bodies_that_wait_take_no_open_files(
    served: tuple[Path, list[memoryview]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_SHARED_BYTES_MIN", 10_000)
    path, bodies = served
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with connect(path, timeout_seconds=10) as client:
        client.call("take", b"")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, limits[1]))
        try:
            for n in range(100):
                assert client.call("take", bytes([n]) * 10_000) == {"bytes": 10_000}
            assert mappings() == 100
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [bytes(body[:2]) for body in bodies[1:]] == [bytes([n, n]) for n in range(100)]


def test_a_server_without_a_descriptor_for_a_body_says_so_and_serves_on(
    served: tuple[Path, list[memoryview]], caplog: pytest.LogCaptureFixture
) -> None:
    path, bodies = served
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    shared = share(memoryview(LARGE))
    assert shared is not None
    with shared, SocketDirectory(path.parent) as directory, socket.socket(socket.AF_UNIX) as ours:
        ours.settimeout(10)
        ours.connect(directory.address(path.name))
        wire._send(ours, {"op": "take"})
        assert wire._receive(ours) is not None
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            socket.send_fds(
                ours, [wire._FRAME.pack(13, len(LARGE) | wire._SHARED) + b'{"op":"take"}'], [shared.fileno()]
            )
            assert ours.recv(1) == b"", "the connection is closed"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with connect(path, timeout_seconds=10) as client:
        assert client.call("take", LARGE) == {"bytes": len(LARGE)}
    assert [len(body) for body in bodies] == [0, len(LARGE)]
    assert "too many open files" in caplog.text


def test_memory_that_could_change_or_shrink_is_refused() -> None:
    shared = share(memoryview(LARGE))
    assert shared is not None
    with shared:
        assert map_shared(shared.fileno(), len(LARGE)) == LARGE
        with pytest.raises(OSError, match="not permitted"):
            os.pwrite(shared.fileno(), b"x", 0)
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(shared.fileno(), 0)
        for size in (len(LARGE) - 1, len(LARGE) + 1):
            with pytest.raises(BadInput, match="sealed memory"):
                map_shared(shared.fileno(), size)
    plain = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    try:
        os.write(plain, LARGE)
        fcntl.fcntl(plain, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        with pytest.raises(BadInput, match="sealed memory"):
            map_shared(plain, len(LARGE))
    finally:
        os.close(plain)
    with tempfile.TemporaryFile() as file, pytest.raises(BadInput, match="sealed memory"):
        file.write(LARGE)
        file.flush()
        map_shared(file.fileno(), len(LARGE))


def test_a_message_that_lies_about_its_memory_is_refused_and_leaves_nothing_open() -> None:
    before = descriptors()
    frame = wire._FRAME.pack(2, len(LARGE) | wire._SHARED)
    for sent in ([], [0], [0, 1]):  # none; one that is no such memory; more than one
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(ours, [frame], sent)
            ours.sendall(b"{}")
            with pytest.raises(BadInput, match="memory"):
                wire._receive(theirs)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire._send(ours, {"op": "take"})
        message = theirs.recv(100)
        socket.send_fds(theirs, [message], [0])  # one that nobody asked for
        assert wire._receive(ours) == ({"op": "take"}, b"")
    assert descriptors() == before

"""Requests over a Unix socket: in a directory of any length, and between processes of one user alone."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import wire
from penstock.errors import BadInput, Unavailable
from penstock.files import socket_address
from penstock.files.socket_address import SocketDirectory, remove_short_directory
from penstock.wire import Server, connect, socket_path
from tests.support.second_user import SECOND_USER, as_second_user, needs_second_user
from tests.support.waiting import wait_until

ECHO: dict[str, wire.Handler] = {"echo": lambda arguments, body: {**arguments, "bytes": len(body)}}


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory that everybody can look into."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(params=[10, 300, 2000], ids="directory of {} bytes".format)
def directory(request: pytest.FixtureRequest, root: Path) -> Path:
    found = root
    while len(os.fsencode(found)) < request.param:
        found /= "d" * 100
    found.mkdir(parents=True, exist_ok=True, mode=0o755)
    return found


def ask(path: Path) -> Any:
    with connect(path, timeout_seconds=10) as client:
        return client.call("echo", b"abc", word="x")


def test_a_socket_works_however_long_its_path_is(directory: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    path = socket_path(directory, "control")
    assert path == directory / "control.sock"
    server = Server(path, ECHO)
    assert ask(path) == {"word": "x", "bytes": 3}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.close()
    assert not list(directory.iterdir())
    with pytest.raises(Unavailable):
        ask(path)
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "every descriptor to be closed")


@pytest.mark.parametrize("runtime", ["ours", "none", "everybody's"])
def test_without_a_proc_a_random_private_name_stands_for_a_long_one(
    directory: Path, root: Path, runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_address, "_DESCRIPTORS", Path("/nowhere"))
    monkeypatch.setattr(tempfile, "tempdir", str(root / "tmp"))
    for name, mode in (("tmp", 0o1777), ("runtime", 0o700 if runtime == "ours" else 0o777)):
        (root / name).mkdir()
        (root / name).chmod(mode)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / "runtime") if runtime != "none" else "")
    path = socket_path(directory, "control")
    server = Server(path, ECHO) if len(os.fsencode(path)) <= socket_address.ADDRESS_BYTES_MAX else None
    if server is None:
        with SocketDirectory(directory) as opened, SocketDirectory(directory) as again:
            short = opened.short_path(40)
            assert short == again.short_path(40), "every process finds the same"
        place = root / ("runtime" if runtime == "ours" else "tmp")
        assert short.parent == place
        assert stat.S_IMODE(short.stat().st_mode) == 0o700
        remove_short_directory(directory)
        assert not list(place.iterdir())
        assert not list(directory.iterdir())
    else:
        server.close()


@needs_second_user
def test_a_directory_of_somebody_else_is_not_served_in_nor_asked(root: Path) -> None:
    root.chmod(0o777)
    with pytest.raises(BadInput, match="other users"):
        Server(socket_path(root, "control"), ECHO)
    root.chmod(0o755)
    os.chown(root, SECOND_USER, SECOND_USER)
    with pytest.raises(BadInput, match="belongs to"):
        Server(socket_path(root, "control"), ECHO)
    os.chown(root, 0, 0)
    server = Server(socket_path(root, "control"), ECHO)
    assert "belongs to" in as_second_user(lambda: _refusal(socket_path(root, "control")))
    server.close()


@needs_second_user
def test_another_user_gets_no_answer_even_where_he_reaches_the_socket(root: Path) -> None:
    path = socket_path(root, "control")
    server = Server(path, ECHO)
    assert as_second_user(lambda: _knock(path)) == "PermissionError"
    path.chmod(0o666)
    assert as_second_user(lambda: _knock(path)) == "closed"
    assert ask(path) == {"word": "x", "bytes": 3}, "it goes on"
    server.close()


@needs_second_user
def test_a_client_does_not_talk_to_a_socket_of_another_user(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if he had put his own in the place of ours."""
    path = socket_path(root, "control")
    server = Server(path, ECHO)
    monkeypatch.setattr(wire, "_peer_user", lambda _connection: SECOND_USER)
    with pytest.raises(Unavailable, match="another user listens"):
        ask(path)
    server.close()


def _refusal(path: Path) -> str:
    with pytest.raises(BadInput) as error:
        ask(path)
    return str(error.value)


def _knock(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        try:
            connection.connect(os.fspath(path))
            return "answer" if connection.recv(1) else "closed"
        except OSError as error:
            return type(error).__name__


def test_a_server_that_had_no_descriptor_left_answers_again(root: Path) -> None:
    path = socket_path(root, "control")
    server = Server(path, {"ping": lambda _arguments, _body: {"pong": 1}})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with socket.socket(socket.AF_UNIX) as waiting, SocketDirectory(root) as directory:
            resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno(), limits[1]))
            waiting.connect(directory.address(path.name))
            time.sleep(0.3)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        with connect(path) as client:
            assert client.call("ping") == {"pong": 1}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        server.close()


def test_an_answer_that_was_not_read_is_not_taken_for_the_next_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = socket_path(root, "control")
    server = Server(path, {"long": lambda _arguments, _body: {"text": "x" * 10_000}, "ping": lambda *_: {"pong": 1}})
    try:
        with connect(path, timeout_seconds=10) as client:
            with monkeypatch.context() as patch, pytest.raises(BadInput, match="too large"):
                patch.setattr(wire, "_HEADER_BYTES_MAX", 1000)
                client.call("long")
            assert client.call("ping") == {"pong": 1}
    finally:
        server.close()

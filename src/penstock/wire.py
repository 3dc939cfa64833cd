"""Requests between Penstock's own processes on one machine: framed messages over a Unix socket.

A frame is `u32 header length, u64 body length` (little-endian), a JSON header, and a raw body. A large body may come
through a window instead (`penstock.shared_memory`), whose bytes do not pass through the kernel: the highest bit of its length
is set, and the window's descriptor comes with the first such frame of a connection. A request's header has
`op` and its arguments; the answer's header is the result, or `error` with kind, message and hint, which the client
raises again as the same kind of error. One thread serves one connection, so a slow caller never holds up another. The
socket's directory is private to the user, and both ends ask the kernel who the other one is: a server answers its own
user and root, a client talks to the owner of the directory alone. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.errors import BadInput, PenstockError, Terminal, Unavailable, error_from_json
from penstock.files.private import FILE_MODE
from penstock.files.socket_address import SocketDirectory
from penstock.shared_memory import WINDOW_BYTES, Window, copied, map_window, own_memory

_logger = logging.getLogger(__name__)
_FRAME = struct.Struct("<IQ")
_HEADER_BYTES_MAX = 64 << 20
_BODY_BYTES_MAX = 1 << 30
_IN_WINDOW = 1 << 63  # in the length of a body that comes through a window
_WINDOW_BYTES_MIN = 256 << 10  # below that the socket costs no more
_AGAIN_SECONDS = 0.1  # between two tries to accept a connection
_CREDENTIALS = struct.Struct("3i")  # process, user and group of the peer

Handler = Callable[[dict[str, Any], memoryview], dict[str, Any]]
Buffer = bytes | bytearray | memoryview


def socket_path(directory: Path, name: str) -> Path:
    """Where the socket `name` of a directory is. The path may be of any length: `Server` and `Client` find a short address
    for it."""
    return directory / f"{name}.sock"


def _peer_user(connection: socket.socket) -> int | None:
    """The user at the other end, from the kernel; None where it cannot tell, and the directory alone must do."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def _receive_exactly(connection: socket.socket, size: int) -> memoryview | None:
    """Reads `size` bytes; None if the peer closed the connection before the first one."""
    view = own_memory(size)
    have = 0
    while have < size:
        got = connection.recv_into(view[have:], size - have)
        if got == 0:
            if have == 0:
                return None
            raise Unavailable("the connection ended in the middle of a message")
        have += got
    return view


class Channel:
    """Messages over one connection, and the windows beside it: ours for what we send, and the peer's. After an error its user
    closes it, and takes another: where the next message begins is not known any more, and a window that the peer may
    still read from is never written to again."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._window: Window | None = None
        self._peers_window: memoryview | None = None

    def close(self) -> None:
        self._connection.close()
        if self._window is not None:
            self._window.close()
        self._window = self._peers_window = None

    def send(self, header: dict[str, Any], body: Buffer = b"") -> None:
        text = json.dumps(header, separators=(",", ":")).encode()
        with memoryview(body) as view:
            if _WINDOW_BYTES_MIN <= view.nbytes <= WINDOW_BYTES and self._put(view, len(text)):
                self._connection.sendall(text)
                return
            self._connection.sendall(_FRAME.pack(len(text), view.nbytes) + text)
            if view.nbytes:
                self._connection.sendall(view)

    def _put(self, body: memoryview, header_bytes: int) -> bool:
        """Puts the body into the window and sends the frame that says so; False where there is none."""
        is_new = self._window is None
        if is_new:
            self._window = Window.make()
        if self._window is None:
            return False
        self._window.put(body)
        frame = _FRAME.pack(header_bytes, body.nbytes | _IN_WINDOW)
        sent = socket.send_fds(self._connection, [frame], [self._window.descriptor]) if is_new else 0
        self._connection.sendall(frame[sent:])
        return True

    def receive(self) -> tuple[dict[str, Any], memoryview] | None:
        """The next message; None if the peer closed the connection before it."""
        head, descriptors, flags, _ = socket.recv_fds(self._connection, _FRAME.size, 1)
        try:
            if not head:
                return None
            if len(head) < _FRAME.size:
                head += bytes(_receive_exactly(self._connection, _FRAME.size - len(head)) or b"")
            if len(head) < _FRAME.size:
                raise Unavailable("the connection ended in the middle of a message")
            header_bytes, body_bytes = _FRAME.unpack(head)
            in_window = bool(body_bytes & _IN_WINDOW)
            body_bytes &= ~_IN_WINDOW
            if header_bytes > _HEADER_BYTES_MAX or body_bytes > (WINDOW_BYTES if in_window else _BODY_BYTES_MAX):
                raise BadInput(f"a message of {header_bytes} + {body_bytes} bytes is too large")
            header = _receive_exactly(self._connection, header_bytes)
            if in_window:
                body: memoryview | None = copied(self._window_of_peer(descriptors, flags)[:body_bytes])
            else:
                body = _receive_exactly(self._connection, body_bytes)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if header is None or body is None:
            raise Unavailable("the connection ended in the middle of a message")
        return json.loads(bytes(header)), body

    def _window_of_peer(self, descriptors: list[int], flags: int) -> memoryview:
        if descriptors:
            self._peers_window = map_window(descriptors[0])
        elif flags & socket.MSG_CTRUNC:  # it came, and the kernel could not give it to us
            raise Unavailable("a body came through a window, and this process has too many open files")
        if self._peers_window is None:
            raise BadInput("a message says that its body comes through a window, and none came with it")
        return self._peers_window


class Server:
    """Serves `handlers` (op → function) on a Unix socket until closed. An older socket file at the path is replaced.

    Raises `BadInput` where the socket's directory is not this user's own.
    """

    def __init__(self, path: Path, handlers: dict[str, Handler]) -> None:
        self._handlers = handlers
        self._path = path
        self._closed = False
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        with SocketDirectory(path.parent) as directory:
            path.unlink(missing_ok=True)
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(directory.address(path.name))
        path.chmod(FILE_MODE)
        self._listener.listen(128)
        threading.Thread(target=self._accept, name=f"wire-{path.stem}", daemon=True).start()

    def close(self) -> None:
        """Stops listening and shuts every connection; handlers that are running finish on their own."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(
                    _AGAIN_SECONDS
                )  # this process has too many open files just now: it heals, and we must be there
                continue
            if _peer_user(connection) not in (None, 0, os.geteuid()):
                _logger.warning("%s: refused a connection of the user %s", self._path, _peer_user(connection))
                connection.close()
                continue
            with self._lock:
                if self._closed:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        try:
            with contextlib.suppress(OSError), contextlib.closing(channel):
                while (message := channel.receive()) is not None:
                    channel.send(self._answer(*message))
        except (PenstockError, ValueError) as error:  # where the next message would begin is not known any more
            _logger.warning("%s: a connection was closed: %s", self._path, error)
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _answer(self, header: dict[str, Any], body: memoryview) -> dict[str, Any]:
        op = header.pop("op", "")
        handler = self._handlers.get(op)
        try:
            if handler is None:
                raise BadInput(f"unknown request {op!r}")
            return handler(header, body)
        except PenstockError as error:
            return {"error": error.to_json()}
        except Exception as error:  # the peer must learn of it, and this connection must survive it
            return {"error": Terminal(f"{op}: {type(error).__name__}: {error}").to_json()}


class Client:
    """A connection to a `Server`. Thread-safe: one request at a time. Connects on first use and again after a break."""

    def __init__(self, path: Path, *, timeout_seconds: float = 60.0) -> None:
        self._path = path
        self._timeout = timeout_seconds
        self._lock = threading.Lock()
        self._channel: Channel | None = None

    def call(self, op: str, body: Buffer = b"", **arguments: Any) -> dict[str, Any]:
        """Sends a request and returns the answer's header. Raises the server's error, or `Unavailable` if nobody
        answers.

        A request is never sent twice: after `Unavailable` the caller does not know whether it was carried out.
        """
        with self._lock:
            try:
                if self._channel is None:
                    self._channel = Channel(self._connect())
                self._channel.send({"op": op, **arguments}, body)
                answer = self._channel.receive()
            except (OSError, Unavailable) as error:
                self._drop()
                raise Unavailable(f"{self._path.stem} does not answer: {error}") from error
            except BaseException:  # the rest of this answer would be taken for the next one
                self._drop()
                raise
            if answer is None:
                self._drop()
                raise Unavailable(f"{self._path.stem} closed the connection")
        header = answer[0]
        if "error" in header:
            raise error_from_json(header["error"])
        return header

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._timeout)
        try:
            with SocketDirectory(self._path.parent, anybody=True) as directory:
                connection.connect(directory.address(self._path.name))
                if _peer_user(connection) not in (None, directory.owner):
                    raise Unavailable(f"another user listens at {self._path}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


@contextlib.contextmanager
def connect(path: Path, *, timeout_seconds: float = 60.0) -> Iterator[Client]:
    """A client for the length of a `with` block."""
    client = Client(path, timeout_seconds=timeout_seconds)
    try:
        yield client
    finally:
        client.close()

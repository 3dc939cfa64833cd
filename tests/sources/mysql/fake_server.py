"""A server that greets as MariaDB does, and then asks for whatever a test wants: it is as hostile as one can be."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.waiting import LIMIT_SECONDS

SSL = 0x800
_CAPABILITIES = 0x1 | 0x4 | 0x8 | 0x200 | 0x8000 | 0x80000 | 0x200000  # 4.1, secure connection, login plugins


@dataclass
class FakeServer:
    """Serves one connection. `got` has every packet of the client, without its header."""

    asks_for: str
    greets_with: str = "mysql_native_password"
    tls: ssl.SSLContext | None = None
    after: bytes = b""  # sent instead of an answer to the login
    got: list[bytes] = field(default_factory=list)
    port: int = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[FakeServer]:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        thread = threading.Thread(target=self._serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, where nobody ever connected; a close does not
            listener.close()
            thread.join(LIMIT_SECONDS)

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                connection.sendall(packet(0, greeting(self.greets_with, tls=self.tls is not None)))
                first = self._take(connection)
                number = 2
                if self.tls is not None and len(first) <= 32:  # the short answer that asks for TLS
                    connection = self.tls.wrap_socket(connection, server_side=True)
                    self._take(connection)
                    number = 3
                request = b"\xfe" + self.asks_for.encode() + b"\0"
                connection.sendall(packet(number, self.after or request))
                self._take(connection)

    def _take(self, connection: socket.socket) -> bytes:
        """One packet and not a byte more: what follows may be TLS."""
        head = _exactly(connection, 4)
        body = _exactly(connection, int.from_bytes(head[:3], "little"))
        self.got.append(body)
        return body


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the client hung up")
        data += more
    return data


def greeting(plugin: str, *, tls: bool) -> bytes:
    flags = _CAPABILITIES | (SSL if tls else 0)
    return b"".join(
        [
            b"\x0a5.5.5-10.11.6-MariaDB\0",
            struct.pack("<I", 1) + b"a" * 8 + b"\0",
            struct.pack("<HBHHB", flags & 0xFFFF, 0x21, 2, flags >> 16, 21),
            b"\0" * 10 + b"b" * 12 + b"\0" + plugin.encode() + b"\0",
        ]
    )


def packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body

"""A TCP proxy in front of a server that cuts, resets or stalls connections after a number of bytes, and changes its target."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator
from enum import Enum

from tests.support.waiting import LIMIT_SECONDS

_PIECE_BYTES = 1 << 16


class Fault(Enum):
    CLOSE = "close"  # as a server that ends
    RESET = "reset"  # as a router that has forgotten the connection
    STALL = "stall"  # open, and nothing comes any more


class Proxy:
    """Passes bytes on both ways. Faults count the bytes that come from the server, over all connections."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._fault: tuple[Fault, int] | None = None  # with the bytes that are left until then
        self._again: tuple[random.Random, int] | None = None
        self.faults: list[Fault] = []  # that happened

    @contextlib.contextmanager
    def running(self) -> Iterator[Proxy]:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.be_kind()
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self.hang_up()
            thread.join(LIMIT_SECONDS)

    def fail_after(self, fault: Fault, count: int) -> None:
        """One fault, after so many bytes of the server."""
        with self._lock:
            self._again, self._fault = None, (fault, count)

    def harass(self, random_source: random.Random, bytes_max: int) -> None:
        """Connections that are closed and reset, each after up to `bytes_max` bytes, until `be_kind`."""
        with self._lock:
            self._again = (random_source, bytes_max)
            self._plan()

    def be_kind(self) -> None:
        with self._lock:
            self._again = self._fault = None

    def hang_up(self) -> None:
        """Ends every connection."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(pair, reset=False)

    def _plan(self) -> None:
        if self._again is not None:
            chance, bytes_max = self._again
            self._fault = (chance.choice((Fault.CLOSE, Fault.RESET)), chance.randrange(bytes_max))

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, 10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._pairs.append((client, server))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink, (client, server)), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                fault, length = self._due(len(piece)) if source is pair[1] else (None, len(piece))
                sink.sendall(piece[:length])
                if fault is Fault.STALL:
                    return  # both stay open, until somebody hangs up
                if fault is not None:
                    _end(pair, reset=fault is Fault.RESET)
                    return
        _end(pair, reset=False)

    def _due(self, length: int) -> tuple[Fault | None, int]:
        """Whether a fault comes within the next `length` bytes, and how many of them still pass."""
        with self._lock:
            if self._fault is None:
                return None, length
            fault, left = self._fault
            if left >= length:
                self._fault = (fault, left - length)
                return None, length
            self.faults.append(fault)
            self._fault = None
            self._plan()
            return fault, left


def _end(pair: tuple[socket.socket, socket.socket], *, reset: bool) -> None:
    for one in pair:
        with contextlib.suppress(OSError):
            if reset:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.close()
            else:
                one.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            one.close()

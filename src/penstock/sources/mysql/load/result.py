"""A result set as the server sends it, read from the socket in large pieces. PyMySQL reads the head of it, and errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pymysql.connections import Connection
from pymysql.constants.COMMAND import COM_QUERY
from pymysql.err import raise_mysql_exception

from penstock.errors import Corruption, Unavailable
from penstock.sources.mysql.connection import translate_errors
from penstock.sources.mysql.load import packets
from penstock.sources.mysql.load.columns import Values

_READ_BYTES = 1 << 20  # much more than PyMySQL buffers: its buffer is empty after the first read
# A server writes 16 KiB at a time. Whoever is faster than it would be woken for each of them, and wake it, which costs both as
# much as the bytes: where few came, more are waited for, fewer than what the socket holds for us meanwhile.
_FEW_BYTES = 64 << 10
_GATHER_SECONDS = 0.0005
_KEPT_BYTES_MAX = 32 << 20  # of the memory for results, from one to the next


@dataclass(frozen=True, slots=True)
class Result:
    """`columns`: the values of each. `whole`: these were the last rows; otherwise the connection is of no other use yet."""

    columns: list[Values]
    count: int
    bytes: int
    whole: bool


class Space:
    """Memory for one result after the other: fresh pages cost as much as what is done in them. Grows with the largest."""

    def __init__(self) -> None:
        self.received = np.empty(_READ_BYTES, np.uint8)
        self.rows = np.empty(2 * _READ_BYTES, np.uint8)

    def want_received(self, more: int) -> None:
        self.received = np.concatenate((self.received, np.empty(more, np.uint8)))

    def want_rows(self, used: int, needed: int) -> None:
        """Keeps what is used."""
        if needed > len(self.rows):
            self.rows = np.concatenate((self.rows[:used], np.empty(max(needed, 2 * len(self.rows)) - used, np.uint8)))

    def trim(self) -> None:
        """Gives back what only a row of unusual size needed."""
        if len(self.received) + len(self.rows) > _KEPT_BYTES_MAX:
            self.__init__()  # type: ignore[misc]


def select(connection: Connection[Any], sql: str, bytes_max: int, space: Space) -> Result:
    """The rows of a query, up to the first that ends at or after `bytes_max`: in `space`, until that is used again. Raises
    the server's errors as they are, by PyMySQL's names; `Unavailable` where the connection breaks."""
    return _Answer(connection, sql, space).read(bytes_max)


def select_pieces(connection: Connection[Any], sql: str, bytes_max: int, space: Space) -> Iterator[Result]:
    """All rows of a query, in pieces of which each ends with the first row at or after `bytes_max`; a piece is in `space` until
    the next one is asked for. Raises as `select` does. Whoever does not read it to its end ends the connection: the rest may
    be hours of rows, and there is no other way not to get them."""
    answer = _Answer(connection, sql, space)
    try:
        while not answer.over:
            piece = answer.read(bytes_max)
            if piece.count:
                yield piece
    finally:
        if not answer.over:
            answer.abandon()


class _Answer:
    """What the server sends for a query. `over`: nothing more comes of it."""

    def __init__(self, connection: Connection[Any], sql: str, space: Space) -> None:
        private: Any = connection  # PyMySQL has no public way to get at the bytes
        private._execute_command(COM_QUERY, sql.encode())
        head = private._read_packet()
        self.over = False
        self._columns = int(head.read_length_encoded_integer())
        for _ in range(self._columns + 1):  # what each column is, and the end of that: the query says it
            private._read_packet()
        self._private = private
        self._space = space
        self._have = 0  # bytes in `space.received` that were not taken yet
        self._first = True
        self._few = False  # came with the last receive

    def read(self, bytes_max: int) -> Result:
        """The next rows."""
        used, count = self._take(bytes_max)
        rows = self._space.rows
        starts = np.empty((self._columns, count), np.int64)
        lengths = np.empty((self._columns, count), np.int32)
        if not packets.locate_values(rows, used, starts, lengths):
            raise Corruption("the server sent rows that cannot be read", hint="is it a MariaDB or a MySQL?")
        found = [Values(rows, starts[i], lengths[i]) for i in range(self._columns)]
        return Result(found, count, used, self.over)

    def abandon(self) -> None:
        self.over = True
        self._private._force_close()

    def _take(self, bytes_max: int) -> tuple[int, int]:
        """Bytes and number of the next rows, which are in `space.rows` then."""
        space, used, count = self._space, 0, 0
        while True:
            space.want_rows(used, used + self._have)
            received = space.received
            consumed, used, more, why = packets.take_rows(received, self._have, space.rows, used, bytes_max)
            count += more
            if why == packets.ERROR:
                self.over = True
                raise_mysql_exception(received[consumed + 4 : self._have].tobytes())
            received[: self._have - consumed] = received[consumed : self._have].copy()
            self._have -= consumed
            if why in (packets.END, packets.ENOUGH):
                self.over = why == packets.END
                self._private._next_seq_id = 0
                return used, count
            self._receive()

    def _receive(self) -> None:
        space = self._space
        if self._few:
            time.sleep(_GATHER_SECONDS)
        if self._have == len(space.received):  # a row that is larger than the buffer
            space.want_received(len(space.received))
        try:
            with translate_errors("reading a chunk"):
                got = _receive(self._private._rfile, space.received[self._have :], first=self._first)
            if not got:
                raise Unavailable("the server closed the connection")
        except BaseException:
            self.over = True
            raise
        self._few = not self._first and got < min(_FEW_BYTES, len(space.received) - self._have)
        self._first = False
        self._have += got


def _receive(stream: Any, space: npt.NDArray[np.uint8], *, first: bool) -> int:
    """How many bytes came; 0 at the end. PyMySQL may have buffered the `first` of them; readinto1 would wait for more."""
    if not first:
        return int(stream.raw.readinto(space.data) or 0)
    data = stream.read1(len(space))
    space[: len(data)] = np.frombuffer(data, np.uint8)
    return len(data)

"""A result set as the server sends it, read from the socket in large pieces. PyMySQL reads the head of it, and errors."""

from __future__ import annotations

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

_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Result:
    """`columns`: the values of each. `whole`: the server sent all rows; otherwise the connection is of no use any more."""

    columns: list[Values]
    count: int
    bytes: int
    whole: bool


def select(connection: Connection[Any], sql: str, bytes_max: int) -> Result:
    """The rows of a query, up to the first that ends at or after `bytes_max`. Raises the server's errors as they are, by
    PyMySQL's names; `Unavailable` where the connection breaks."""
    private: Any = connection  # PyMySQL has no public way to get at the bytes
    private._execute_command(COM_QUERY, sql.encode())
    head = private._read_packet()
    columns = int(head.read_length_encoded_integer())
    for _ in range(columns + 1):  # what each column is, and the end of that: the query says it
        private._read_packet()
    rows, used, count, whole = _read_rows(private, bytes_max)
    starts = np.empty((columns, count), np.int64)
    lengths = np.empty((columns, count), np.int32)
    if not packets.locate_values(rows, used, starts, lengths):
        raise Corruption("the server sent rows that cannot be read", hint="is it a MariaDB or a MySQL?")
    found = [Values(rows, starts[i], lengths[i]) for i in range(columns)]
    return Result(found, count, used, whole)


def _read_rows(private: Any, bytes_max: int) -> tuple[npt.NDArray[np.uint8], int, int, bool]:
    received = np.empty(_READ_BYTES, np.uint8)
    rows = np.empty(2 * _READ_BYTES, np.uint8)
    have = used = count = 0
    while True:
        if have == len(received):  # a row that is larger than the buffer
            received = np.concatenate((received, np.empty(len(received), np.uint8)))
        with translate_errors("reading a chunk"):
            got = _receive(private._rfile, received[have:], first=not have and not used)
        if not got:
            raise Unavailable("the server closed the connection")
        have += got
        if used + have > len(rows):
            rows = np.concatenate((rows[:used], np.empty(max(used + have, 2 * len(rows)) - used, np.uint8)))
        consumed, used, more, why = packets.take_rows(received, have, rows, used, bytes_max)
        count += more
        if why == packets.ERROR:
            raise_mysql_exception(received[consumed + 4 : have].tobytes())
        if why in (packets.END, packets.ENOUGH):
            private._next_seq_id = 0
            return rows, used, count, why == packets.END
        received[: have - consumed] = received[consumed:have].copy()
        have -= consumed


def _receive(stream: Any, space: npt.NDArray[np.uint8], *, first: bool) -> int:
    """How many bytes came; 0 at the end. PyMySQL may have buffered the `first` of them; readinto1 would wait for more."""
    if not first:
        return int(stream.raw.readinto(space.data) or 0)
    data = stream.read1(len(space))
    space[: len(data)] = np.frombuffer(data, np.uint8)
    return len(data)

"""The metadata store on SQLite: one file, usable from several processes and threads of one machine.

WAL mode with `synchronous=FULL`: a commit is on the disk when it returns, and readers never wait for the writer. SQLite
is the one exception to the rule that every durable file goes through `penstock.files`: it has a crash safety of its
own, tested far better than ours could be.

SQLite has no checksums. So every entry carries one, and the number of entries and the sum of their checksums are kept
beside them (docs/formats/metadata.md). All of it is checked when the store is opened, and the checksum of an entry
whenever it is read: damage is never mistaken for an entry that is not there.
"""

from __future__ import annotations

import contextlib
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import google_crc32c

from penstock.errors import Closed, Corruption, StorageFailed, Unavailable
from penstock.files import REAL_FILES
from penstock.metadata.store import Check, Create, Delete, Operation, Put, Versioned, conflict

_FORMAT = 2
_APPLICATION_ID = 0x50535431  # "PST1"; SQLite files of other programs are refused
_BUSY_SECONDS = 10.0
_CHECKED = struct.Struct("<IQ")  # length of the key, version: the head of the bytes that a checksum covers
_LAST = "\U0010ffff"  # no key with a prefix sorts after the prefix with this character


class SqliteMetadata:
    """Opens the store at `path`, or makes a new one there unless `must_exist`."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        if must_exist and not path.exists():
            raise Unavailable(f"there is no metadata at {path}", hint="has the capture process started once?")
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            with self._errors():
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode=WAL").fetchone()
        connection.execute("PRAGMA synchronous=FULL")
        if not _is_store(connection):
            self._make(connection)
            REAL_FILES.sync_directory(self.path.parent)  # the name of a new store must be durable too
        self._verify(connection)

    def _make(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not _is_store(connection):  # else another process made it meanwhile
                if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                    raise Corruption(
                        f"{self.path} is not a metadata store of this version",
                        hint="nothing was changed; check the path",
                    )
                connection.execute(
                    "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL,"
                    " crc INTEGER NOT NULL) WITHOUT ROWID"
                )
                connection.execute("CREATE TABLE totals (entries INTEGER NOT NULL, crc_sum INTEGER NOT NULL)")
                connection.execute("INSERT INTO totals VALUES (0, 0)")
                connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={_FORMAT}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _verify(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        try:
            totals = connection.execute("SELECT entries, crc_sum FROM totals").fetchall()
            rows = connection.execute("SELECT key, value, version, crc FROM entries").fetchall()
        finally:
            connection.execute("COMMIT")
        for row in rows:
            self._checked(*row)
        if totals != [(len(rows), sum(row[3] for row in rows))]:
            raise self._damage("entries are missing")

    def _checked(self, key: object, value: object, version: object, crc: object) -> Versioned:
        if not (isinstance(key, str) and isinstance(value, bytes) and isinstance(version, int)) or (
            not 0 < version < 1 << 63 or _crc(key, value, version) != crc
        ):
            raise self._damage(f"the entry {key!r} does not match its checksum")
        return Versioned(value, version)

    def _damage(self, what: str) -> Corruption:
        return Corruption(
            f"{self.path} is damaged: {what}",
            hint="nothing was changed; check the disk and restore the file from a copy",
        )

    def get(self, key: str) -> Versioned | None:
        with self._use() as connection:
            row = connection.execute("SELECT key, value, version, crc FROM entries WHERE key = ?", (key,)).fetchone()
        return self._checked(*row) if row else None

    def create(self, key: str, value: bytes) -> int:
        self.transaction([Create(key, value)])
        return 1

    def put(self, key: str, value: bytes, expected: int) -> int:
        self.transaction([Put(key, value, expected)])
        return expected + 1

    def delete(self, key: str, expected: int) -> None:
        self.transaction([Delete(key, expected)])

    def children(self, prefix: str) -> list[str]:
        with self._use() as connection:
            rows = connection.execute(
                "SELECT key FROM entries WHERE key >= ? AND key < ? ORDER BY key", (prefix, prefix + _LAST)
            ).fetchall()
        return [row[0] for row in rows]

    def entries(self, prefix: str) -> list[tuple[str, Versioned]]:
        with self._use() as connection:
            rows = connection.execute(
                "SELECT key, value, version, crc FROM entries WHERE key >= ? AND key < ? ORDER BY key",
                (prefix, prefix + _LAST),
            ).fetchall()
        return [(row[0], self._checked(*row)) for row in rows]

    def transaction(self, operations: Sequence[Operation]) -> None:
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                entries = crcs = 0
                for operation in operations:
                    more, change = _apply(connection, operation)
                    entries, crcs = entries + more, crcs + change
                if crcs or entries:
                    connection.execute(
                        "UPDATE totals SET entries = entries + ?, crc_sum = crc_sum + ?", (entries, crcs)
                    )
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._connection is None:
                raise Closed(f"{self.path} is closed")
            with self._errors():
                yield self._connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            text = str(error)
            if "locked" in text or "busy" in text:
                raise Unavailable(f"{self.path} is busy: {text}") from error
            raise StorageFailed(
                f"{self.path}: {text}", hint="free space or repair the disk, then start again"
            ) from error
        except (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError) as error:
            raise Corruption(f"{self.path}: {error}", hint="nothing was changed; restore the file") from error


def _is_store(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(application == _APPLICATION_ID and version == _FORMAT)


def _apply(connection: sqlite3.Connection, operation: Operation) -> tuple[int, int]:
    """Applies one operation. Returns by how much the number of entries and the sum of their checksums grow."""
    row = connection.execute("SELECT version, crc FROM entries WHERE key = ?", (operation.key,)).fetchone()
    version, crc = row or (0, 0)
    expected = 0 if isinstance(operation, Create) else operation.expected
    if version != expected:
        raise conflict(operation.key, expected, version)
    match operation:
        case Create(key, value):
            new = _crc(key, value, 1)
            connection.execute("INSERT INTO entries VALUES (?, ?, 1, ?)", (key, value, new))
            return 1, new
        case Put(key, value, _):
            new = _crc(key, value, version + 1)
            connection.execute(
                "UPDATE entries SET value = ?, version = ?, crc = ? WHERE key = ?", (value, version + 1, new, key)
            )
            return 0, new - crc
        case Delete(key, _):
            connection.execute("DELETE FROM entries WHERE key = ?", (key,))
            return -1, -crc
        case Check():
            return 0, 0


def _crc(key: str, value: bytes, version: int) -> int:
    name = key.encode()
    return int(google_crc32c.value(_CHECKED.pack(len(name), version) + name + value))

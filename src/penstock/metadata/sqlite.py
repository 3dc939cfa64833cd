"""The metadata store on SQLite: one file, usable from several processes and threads of one machine.

WAL mode: a commit is on the disk when it returns, and readers never wait for the writer. SQLite is the one exception to
the rule that every durable file goes through `penstock.files`: it has a crash safety of its own, tested far better than
ours could be.

Where the write or sync of a COMMIT fails, its frames may stand whole in the WAL: no connection sees them, but whoever opens
the store after a crash does. So every error from COMMIT on is `OutcomeUnknown`, the handle refuses everything from then
on, and a new handle *settles* what others left before anybody acts on what it reads: it writes the WAL's bytes again (after
a failed sync they may be in the page cache alone, and a later sync would not bring them to the disk) and commits a
transaction after them, or over them.

SQLite has no checksums. So every entry carries one, and the number of entries and the sum of their checksums are kept
beside them (docs/formats/metadata.md). All of it is checked when the store is opened, and the checksum of an entry
whenever it is read: damage is never mistaken for an entry that is not there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import google_crc32c

from penstock.arguments import check_text, checked_path
from penstock.errors import Closed, Corruption, OutcomeUnknown, StorageFailed, Unavailable, fresh
from penstock.files import REAL_FILES, write_again
from penstock.files.private import open_private
from penstock.metadata.store import (
    Check,
    Create,
    Delete,
    Operation,
    Put,
    Versioned,
    check_key,
    checked_operations,
    conflict,
    refusal,
)

_FORMAT = 2
_APPLICATION_ID = 0x50535431  # "PST1"; SQLite files of other programs are refused
_BUSY_SECONDS = 10.0
_CHECKED = struct.Struct("<IQ")  # length of the key, version: the head of the bytes that a checksum covers
_LAST = "\U0010ffff"  # the last character that there is
_IN_RANGE = "key >= ? AND key < ?"


class SqliteMetadata:
    """Opens the store at `path`, or makes a new one there unless `must_exist`."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path = checked_path("the path of a metadata store", path)
        self._lock = threading.Lock()
        self._process = os.getpid()  # a forked child has neither SQLite's locks nor the thread that may hold ours
        self._connection: sqlite3.Connection | None = None
        self._unknown: OutcomeUnknown | None = None
        self._settled = False
        with self._errors():
            if must_exist and not path.exists():
                raise Unavailable(f"there is no metadata at {path}", hint="has the capture process started once?")
            self._refuse_others()
            self._make_private()
            connection = sqlite3.connect(
                self._uri(), uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        try:
            with self._errors():
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _uri(self) -> str:
        """Of a file that was closed in order, on a disk that is mounted read-only, SQLite is told that it is `immutable`:
        else it wants to make files beside it, even to read."""
        uri = self.path.absolute().as_uri()
        wal = self.path.with_name(self.path.name + "-wal")
        if self.path.exists() and os.statvfs(self.path).f_flag & os.ST_RDONLY and not wal.exists():
            return f"{uri}?immutable=1"
        return uri

    def _refuse_others(self) -> None:
        """Raises `Corruption` for a file of another program or version, before SQLite may change a byte of it.

        The header says whose file it is, from the first moment on: a store is made before it is switched to WAL mode. It is
        read by SQLite all the same, not by us: closing a file drops every lock that this process has on it. `immutable`
        leaves out locks, journals and recovery. A making that a crash interrupted leaves a journal: then `_make` looks.
        """
        try:
            if self.path.stat().st_size == 0:
                return
        except FileNotFoundError:
            return
        uri = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as header:
                ours = _is_store(header)
        except sqlite3.Error:
            ours = self.path.with_name(self.path.name + "-journal").exists()
        if not ours:
            raise self._foreign()

    def _make_private(self) -> None:
        """Makes a new store's file, empty and for this user alone. SQLite gives its `-wal` and `-shm` the same mode: whoever
        can open `-shm` can hold a lock on it, and stall every change.

        It gets its name once it is closed, because closing a file drops every lock that this process has on it, those of
        another thread's connection too.
        """
        if self.path.exists():
            return
        empty = self.path.with_name(f".{self.path.name}.empty")
        empty.unlink(missing_ok=True)  # of a making that a crash interrupted
        with contextlib.suppress(OSError):  # another process makes it; or SQLite must, on a file system without links
            open_private(empty, "xb").close()
            self.path.hardlink_to(empty)
        empty.unlink(missing_ok=True)

    def _foreign(self) -> Corruption:
        return Corruption(
            f"{self.path} is not a metadata store of this version", hint="nothing was changed; check the path"
        )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # As FULL; in the journal mode in which a store is made, the removal of the journal is durable too.
        connection.execute("PRAGMA synchronous=EXTRA")
        if not _is_store(connection):
            self._make(connection)
            REAL_FILES.sync_directory(self.path.parent)  # the name of a new store must be durable too
        connection.execute("PRAGMA journal_mode=WAL").fetchone()
        self._verify(connection)

    def _make(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not _is_store(connection):  # else another process made it meanwhile
                if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
                    raise self._foreign()
                connection.execute(
                    "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL,"
                    " crc INTEGER NOT NULL) WITHOUT ROWID"
                )
                connection.execute(
                    "CREATE TABLE totals (entries INTEGER NOT NULL, version INTEGER NOT NULL, crc_sum INTEGER NOT NULL)"
                )
                connection.execute("INSERT INTO totals VALUES (0, 0, 0)")
                connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={_FORMAT}")
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise

    def _verify(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        try:
            totals = connection.execute("SELECT entries, version, crc_sum FROM totals").fetchall()
            rows = connection.execute("SELECT key, value, version, crc FROM entries").fetchall()
        finally:
            connection.execute("COMMIT")
        for row in rows:
            self._checked(*row)
        entries, version, crc_sum = totals[0] if len(totals) == 1 else (0, 0, -1)
        if (entries, crc_sum) != (len(rows), version + sum(row[3] for row in rows)):
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

    @property
    def unknown(self) -> OutcomeUnknown | None:
        return self._unknown

    def settle(self) -> None:
        if not self._settled:
            self.transaction([])

    def get(self, key: str) -> Versioned | None:
        check_key(key)
        with self._use() as connection:
            row = connection.execute("SELECT key, value, version, crc FROM entries WHERE key = ?", (key,)).fetchone()
        return self._checked(*row) if row else None

    def create(self, key: str, value: bytes) -> int:
        return self.transaction([Create(key, value)])

    def put(self, key: str, value: bytes, expected: int) -> int:
        return self.transaction([Put(key, value, expected)])

    def delete(self, key: str, expected: int) -> None:
        self.transaction([Delete(key, expected)])

    def children(self, prefix: str) -> list[str]:
        check_text("a prefix of keys", prefix)
        with self._use() as connection:
            rows = connection.execute(
                f"SELECT key FROM entries WHERE {_IN_RANGE} ORDER BY key", _range_of(prefix)
            ).fetchall()
        return [row[0] for row in rows]

    def entries(self, prefix: str) -> list[tuple[str, Versioned]]:
        check_text("a prefix of keys", prefix)
        with self._use() as connection:
            rows = connection.execute(
                f"SELECT key, value, version, crc FROM entries WHERE {_IN_RANGE} ORDER BY key",
                _range_of(prefix),
            ).fetchall()
        return [(row[0], self._checked(*row)) for row in rows]

    def transaction(self, operations: Sequence[Operation]) -> int:
        operations = checked_operations(operations)
        with self._use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                if not self._settled:
                    self._write_wal_again()  # nobody else writes it while the transaction is open
                new = int(connection.execute("SELECT version FROM totals").fetchone()[0]) + 1
                entries, crcs = 0, 1  # the sum covers the version, too
                for operation in operations:
                    more, change = _apply(connection, operation, new)
                    entries, crcs = entries + more, crcs + change
                connection.execute(
                    "UPDATE totals SET entries = entries + ?, version = ?, crc_sum = crc_sum + ?", (entries, new, crcs)
                )
            except BaseException:
                _roll_back(connection)
                raise
            self._commit(connection)
            self._settled = True
            return new

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except BaseException as error:
            self._unknown = OutcomeUnknown(
                f"{self.path}: nobody knows whether a change is on the disk: {error}",
                hint="free space or repair the disk, then start again: the next start finds out",
            )
            with contextlib.suppress(
                sqlite3.Error
            ):  # for the others: it gives the lock back, and undoes nothing on the disk
                _roll_back(connection)
            raise fresh(self._unknown) from error

    def _write_wal_again(self) -> None:
        wal = self.path.with_name(self.path.name + "-wal")
        if not wal.exists():
            return
        file = REAL_FILES.open(wal, writable=True)
        try:
            write_again(file, 0, file.size())
            file.datasync()
        finally:
            file.close()

    def close(self) -> None:
        """Does nothing in a forked child: the store is its parent's."""
        if self._process != os.getpid():
            return
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with self._errors():
                    connection.close()

    @contextlib.contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        if self._process != os.getpid():
            raise Closed(f"{self.path} is closed", hint="it belongs to the process that opened it: open it again here")
        with self._lock:
            if self._connection is None:
                raise Closed(f"{self.path} is closed")
            if self._unknown is not None:
                raise refusal(self._unknown)
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
        except OSError as error:
            raise StorageFailed(
                f"{self.path}: {error}", hint="free space or repair the disk, then start again"
            ) from error
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            raise Corruption(f"{self.path}: {error}", hint="nothing was changed; restore the file") from error


def _range_of(prefix: str) -> tuple[str, str | bytes]:
    """The first key that begins with `prefix`, and what is above the last one."""
    stripped = prefix.rstrip(_LAST)
    if not stripped:
        return prefix, b""  # a blob is above every text
    following = ord(stripped[-1]) + 1
    return prefix, stripped[:-1] + chr(following if following != 0xD800 else 0xE000)  # UTF-8 has no surrogates


def _is_store(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(application == _APPLICATION_ID and version == _FORMAT)


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _apply(connection: sqlite3.Connection, operation: Operation, new: int) -> tuple[int, int]:
    """Applies one operation; what it writes gets the version `new`. Returns by how much the number of entries and the sum of their checksums grow."""
    row = connection.execute("SELECT version, crc FROM entries WHERE key = ?", (operation.key,)).fetchone()
    version, crc = row or (0, 0)
    expected = 0 if isinstance(operation, Create) else operation.expected
    if version != expected:
        raise conflict(operation.key, expected, version)
    match operation:
        case Create(key, value):
            checksum = _crc(key, value, new)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (key, value, new, checksum))
            return 1, checksum
        case Put(key, value, _):
            checksum = _crc(key, value, new)
            connection.execute(
                "UPDATE entries SET value = ?, version = ?, crc = ? WHERE key = ?", (value, new, checksum, key)
            )
            return 0, checksum - crc
        case Delete(key, _):
            connection.execute("DELETE FROM entries WHERE key = ?", (key,))
            return -1, -crc
        case Check():
            return 0, 0


def _crc(key: str, value: bytes, version: int) -> int:
    name = key.encode()
    return int(google_crc32c.value(_CHECKED.pack(len(name), version) + name + value))

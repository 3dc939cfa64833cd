"""Compare-and-set, the same for both stores; SQLite from several processes, damaged, and of others."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Closed, Corruption, StorageFailed, Unavailable
from penstock.metadata import (
    Check,
    Create,
    Delete,
    MemoryMetadata,
    MetadataStore,
    Put,
    SqliteMetadata,
    VersionConflict,
    Versioned,
)
from tests.support.second_user import as_second_user, can, needs_second_user
from tests.support.waiting import LIMIT_SECONDS


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    store: MetadataStore = SqliteMetadata(tmp_path / "m.sqlite") if request.param == "sqlite" else MemoryMetadata()
    yield store
    store.close()


def test_versions(store: MetadataStore) -> None:
    assert store.get("a/b") is None
    first = store.create("a/b", b"1")
    with pytest.raises(VersionConflict, match=f"'a/b' is at version {first}, not at none"):
        store.create("a/b", b"again")
    second = store.put("a/b", b"2", first)
    assert second > first
    with pytest.raises(VersionConflict):
        store.put("a/b", b"3", first)
    with pytest.raises(VersionConflict):
        store.put("other", b"3", first)
    assert store.get("a/b") == Versioned(b"2", second)
    with pytest.raises(VersionConflict):
        store.delete("a/b", first)
    store.delete("a/b", second)
    assert store.get("a/b") is None


def test_a_version_of_a_key_is_never_given_again(store: MetadataStore) -> None:
    """Whoever read the key before it was deleted and created anew must conflict (ABA)."""
    seen = [store.create("a", b"old")]
    for _ in range(3):
        store.delete("a", seen[-1])
        seen.append(store.create("a", b"new"))
        seen.append(store.put("a", b"newer", seen[-1]))
    assert len(set(seen)) == len(seen)
    for old in seen[:-1]:
        with pytest.raises(VersionConflict):
            store.delete("a", old)


def test_versions_go_on_after_a_reopen(tmp_path: Path) -> None:
    with contextlib.closing(SqliteMetadata(tmp_path / "m.sqlite")) as store:
        old = store.create("a", b"")
        store.delete("a", old)
    with contextlib.closing(SqliteMetadata(tmp_path / "m.sqlite")) as store:
        assert store.create("a", b"") > old


def test_children(store: MetadataStore) -> None:
    for key in ("c/2", "c/1", "c%", "d/1"):
        store.create(key, b"")
    assert store.children("c/") == ["c/1", "c/2"]
    assert store.children("c") == ["c%", "c/1", "c/2"]


@pytest.mark.parametrize("prefix", ["", "p", "p\ud7ff", "p\U0010ffff", "\U0010ffff"])
def test_children_with_the_last_character_that_there_is(store: MetadataStore, prefix: str) -> None:
    keys = [
        "p",
        "p/x",
        "p\ud7ff",
        "p\ud7ffx",
        "p\ue000",
        "p\U0010ffff",
        "p\U0010ffffx",
        "q",
        "\U0010ffff",
        "\U0010ffffx",
    ]
    for key in keys:
        store.create(key, b"")
    assert store.children(prefix) == [key for key in keys if key.startswith(prefix)]
    assert [key for key, _ in store.entries(prefix)] == store.children(prefix)


def test_entries_are_the_children_with_their_values(store: MetadataStore) -> None:
    versions = {key: store.create(key, key.encode()) for key in ("b/1", "c/2", "c/1", "c%", "c0", "c/\U0001f600")}
    versions["c/1"] = store.put("c/1", b"again", versions["c/1"])
    assert store.entries("c/") == [
        ("c/1", (b"again", versions["c/1"])),
        ("c/2", (b"c/2", versions["c/2"])),
        ("c/\U0001f600", ("c/\U0001f600".encode(), versions["c/\U0001f600"])),
    ]
    assert [key for key, _ in store.entries("")] == store.children("")
    assert store.entries("d") == []


def test_a_transaction_is_all_or_nothing(store: MetadataStore) -> None:
    a, b = store.create("a", b"1"), store.create("b", b"1")
    with pytest.raises(VersionConflict):
        store.transaction([Put("a", b"2", a), Delete("b", b), Create("c", b"1"), Check("a", a)])
    assert (store.get("a"), store.get("b"), store.get("c")) == (Versioned(b"1", a), Versioned(b"1", b), None)
    new = store.transaction([Check("c", 0), Put("a", b"2", a), Delete("b", b), Create("c", b"1")])
    assert (store.get("a"), store.get("b"), store.get("c")) == (Versioned(b"2", new), None, Versioned(b"1", new))


INCREMENT = """
import sys
from pathlib import Path
from penstock.metadata import SqliteMetadata, VersionConflict
store = SqliteMetadata(Path(sys.argv[1]))
done = 0
while done < 40:
    value, version = store.get("n")
    try:
        store.put("n", b"%d" % (int(value) + 1), version)
        done += 1
    except VersionConflict:
        pass
"""


def test_processes_never_lose_an_update(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    store = SqliteMetadata(path)
    store.create("n", b"0")
    workers = [subprocess.Popen([sys.executable, "-c", INCREMENT, str(path)]) for _ in range(2)]
    assert [worker.wait(LIMIT_SECONDS) for worker in workers] == [0, 0]
    found = store.get("n")
    assert found is not None and found.value == b"80"
    store.close()


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        SqliteMetadata(tmp_path / "none.sqlite", must_exist=True)
    (tmp_path / "text").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(Corruption):
        SqliteMetadata(tmp_path / "text")


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("pragma", ["user_version=2", f"application_id={0x50535431}", "user_version=0"])
def test_another_version_or_program_is_refused_and_left_alone(tmp_path: Path, pragma: str, journal: str) -> None:
    """Byte for byte, whether that program is running or not."""
    path = tmp_path / "app.sqlite"
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA journal_mode={journal}")
    other.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL)")
    other.execute(f"PRAGMA {pragma}")
    other.commit()
    for running in (True, False):
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}
        with pytest.raises(Corruption, match="not a metadata store of this version"):
            SqliteMetadata(path)
        assert {f.name: f.read_bytes() for f in tmp_path.iterdir() if not f.name.endswith("-shm")} == before
        if running:
            other.close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == (journal,)


def test_looking_at_a_file_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    """Closing a file drops all locks that a process has on it: another process would take the store for unused, and remove
    its WAL."""
    path = tmp_path / "m.sqlite"
    with contextlib.closing(SqliteMetadata(path)) as first:
        first.create("a", b"1")
        SqliteMetadata(path, must_exist=True).close()
        script = (
            "import sys; from pathlib import Path; from penstock.metadata import SqliteMetadata;"
            "store = SqliteMetadata(Path(sys.argv[1])); store.create('b', b'2'); store.close()"
        )
        subprocess.run([sys.executable, "-c", script, str(path)], check=True)
        assert (tmp_path / "m.sqlite-wal").exists()
        assert first.get("b") is not None


@pytest.mark.parametrize("closed", [True, False])
def test_a_store_on_a_read_only_disk_is_read_and_nothing_is_made_beside_it(
    *, closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that is mounted read-only, or a copy of one, as its owner left it, or as a crash did."""
    store = SqliteMetadata(tmp_path / "m.sqlite")
    version = store.create("a", b"1")
    if closed:
        store.close()
    files = sorted(tmp_path.iterdir())
    assert (len(files) == 1) is closed
    mounted = os.statvfs(tmp_path)
    read_only = os.statvfs_result((*mounted[:8], mounted.f_flag | os.ST_RDONLY, *mounted[9:]))
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    with contextlib.closing(SqliteMetadata(tmp_path / "m.sqlite", must_exist=True)) as reader:
        assert reader.get("a") == (b"1", version)
        assert reader.children("") == ["a"]
        if closed:
            with pytest.raises(StorageFailed, match="readonly"):
                reader.put("a", b"2", version)
        assert sorted(tmp_path.iterdir()) == files
    store.close()


def test_a_making_that_a_crash_interrupted_is_done_again(tmp_path: Path) -> None:
    """The pages are there, in part; the journal that takes them back too."""
    path = tmp_path / "m.sqlite"
    script = (
        "import os, sys, sqlite3; connection = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "connection.execute('PRAGMA cache_size=1'); connection.execute('BEGIN IMMEDIATE');"
        "connection.execute('CREATE TABLE t (x)');"
        "connection.executemany('INSERT INTO t VALUES (?)', [('x' * 3000,)] * 500); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert path.with_name("m.sqlite-journal").stat().st_size and path.stat().st_size
    with path.open("r+b") as file:
        file.write(bytes(4096))
    with contextlib.closing(SqliteMetadata(path)) as store:
        assert store.create("a", b"1")


def test_damage_is_found_at_the_next_open(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    store = SqliteMetadata(path)
    store.create("log/a", b"\1\2")
    store.create("log/b", b"")
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as damaged:
        damaged.execute("UPDATE entries SET value = x'0103' WHERE key = 'log/a'")
        damaged.commit()
    with pytest.raises(Corruption, match="log/a"):
        SqliteMetadata(path)
    with contextlib.closing(sqlite3.connect(path)) as damaged:
        damaged.execute("DELETE FROM entries WHERE key = 'log/a'")
        damaged.commit()
    with pytest.raises(Corruption, match="missing"):
        SqliteMetadata(path)


@needs_second_user
def test_another_user_can_hold_no_lock_on_any_file_of_the_store() -> None:
    """Whoever can open `-shm` can lock it, and every change of the metadata would wait for him. So the files have the right
    mode by themselves, even in a directory that he can look into and with an umask that gives everything away."""
    umask = os.umask(0)
    with tempfile.TemporaryDirectory() as name, contextlib.closing(SqliteMetadata(Path(name) / "m.sqlite")) as store:
        os.umask(umask)
        directory = Path(name)
        directory.chmod(0o755)
        store.create("a", b"1")
        found = sorted(directory.iterdir())
        assert [path.name for path in found] == ["m.sqlite", "m.sqlite-shm", "m.sqlite-wal"]
        assert [stat.S_IMODE(path.stat().st_mode) for path in found] == [0o600] * 3
        assert as_second_user(lambda: [path.name for path in found if can(lambda path=path: _lock(path))]) == []
        store.put("a", b"2", 1)


def _lock(path: Path) -> None:
    for flags, kind in ((os.O_RDWR, fcntl.LOCK_EX), (os.O_RDONLY, fcntl.LOCK_SH)):
        with contextlib.suppress(OSError):
            fcntl.lockf(os.open(path, flags), kind | fcntl.LOCK_NB)
            return
    raise PermissionError(path)


@pytest.mark.parametrize("busy", [False, True])
def test_a_forked_child_is_refused(tmp_path: Path, busy: bool) -> None:
    """SQLite's locks are not the child's, and a thread that holds ours is not there: it would never be given back."""
    store = SqliteMetadata(tmp_path / "m.sqlite")
    with store._lock if busy else contextlib.nullcontext():
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            try:
                store.close()
                store.create("key", b"")
            except Closed:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    assert store.children("") == []
    store.close()

"""Compare-and-set, the same for both stores; SQLite from several processes, damaged, and of others."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Corruption, Unavailable
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
from tests.support.waiting import LIMIT_SECONDS


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    store: MetadataStore = SqliteMetadata(tmp_path / "m.sqlite") if request.param == "sqlite" else MemoryMetadata()
    yield store
    store.close()


def test_versions(store: MetadataStore) -> None:
    assert store.get("a/b") is None
    assert store.create("a/b", b"1") == 1
    with pytest.raises(VersionConflict, match="'a/b' is at version 1, not at none"):
        store.create("a/b", b"again")
    assert store.put("a/b", b"2", 1) == 2
    with pytest.raises(VersionConflict):
        store.put("a/b", b"3", 1)
    with pytest.raises(VersionConflict):
        store.put("other", b"3", 1)
    assert store.get("a/b") == Versioned(b"2", 2)
    with pytest.raises(VersionConflict):
        store.delete("a/b", 1)
    store.delete("a/b", 2)
    assert store.get("a/b") is None


def test_children(store: MetadataStore) -> None:
    for key in ("c/2", "c/1", "c%", "d/1"):
        store.create(key, b"")
    assert store.children("c/") == ["c/1", "c/2"]
    assert store.children("c") == ["c%", "c/1", "c/2"]


def test_entries_are_the_children_with_their_values(store: MetadataStore) -> None:
    for key in ("b/1", "c/2", "c/1", "c%", "c0", "c/\U0001f600"):
        store.create(key, key.encode())
    store.put("c/1", b"again", 1)
    assert store.entries("c/") == [
        ("c/1", (b"again", 2)),
        ("c/2", (b"c/2", 1)),
        ("c/\U0001f600", ("c/\U0001f600".encode(), 1)),
    ]
    assert [key for key, _ in store.entries("")] == store.children("")
    assert store.entries("d") == []


def test_a_transaction_is_all_or_nothing(store: MetadataStore) -> None:
    store.create("a", b"1")
    store.create("b", b"1")
    with pytest.raises(VersionConflict):
        store.transaction([Put("a", b"2", 1), Delete("b", 1), Create("c", b"1"), Check("a", 1)])
    assert (store.get("a"), store.get("b"), store.get("c")) == (Versioned(b"1", 1), Versioned(b"1", 1), None)
    store.transaction([Check("c", 0), Put("a", b"2", 1), Delete("b", 1), Create("c", b"1")])
    assert (store.get("a"), store.get("b"), store.get("c")) == (Versioned(b"2", 2), None, Versioned(b"1", 1))


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
    assert store.get("n") == Versioned(b"80", 81)
    store.close()


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        SqliteMetadata(tmp_path / "none.sqlite", must_exist=True)
    (tmp_path / "text").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(Corruption):
        SqliteMetadata(tmp_path / "text")


def test_another_version_or_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    for number, pragmas in enumerate((("PRAGMA user_version=2",), (f"PRAGMA application_id={0x50535431}",))):
        path = tmp_path / f"{number}.sqlite"
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL)")
            for pragma in pragmas:
                other.execute(pragma)
            other.commit()
        with pytest.raises(Corruption, match="not a metadata store of this version"):
            SqliteMetadata(path)
        with contextlib.closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == [("entries",)]


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

"""Every public call of the metadata stores with wrong types and values: `BadInput`, and nothing was changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, Closed, Corruption, PenstockError, StorageFailed
from penstock.metadata import Create, Delete, MemoryMetadata, MetadataStore, Put, SqliteMetadata
from tests.support.wrong_input import Argument, Calls, arguments_of, cases, count, needed, refuses, typed

ANY_PUT: Any = Put  # with whatever in it
ANY_DELETE: Any = Delete
KEY = typed("new", str, bad=("", "a\0b", "\ud800"))
PREFIX = typed("", str, bad=("\ud800",))
VALUE = typed(b"x", bytes)
OPERATIONS = Argument(
    list,
    lambda value: isinstance(value, (list, tuple)) and not value,
    (
        [1],
        [None],
        [Create("", b"x")],
        [ANY_PUT("k", "x", 1)],
        [Put("k", b"x", -1)],
        [ANY_DELETE("k", 1.5)],
        [Create("ok", b""), 5],
    ),
)
CALLS: Calls = {
    "get": {"key": KEY},
    "create": {"key": KEY, "value": VALUE},
    "put": {"key": KEY, "value": VALUE, "expected": count()},
    "delete": {"key": KEY, "expected": count()},
    "children": {"prefix": PREFIX},
    "entries": {"prefix": PREFIX},
    "transaction": {"operations": OPERATIONS},
}


def stores(tmp_path: Path) -> list[MetadataStore]:
    return [SqliteMetadata(tmp_path / "m.sqlite"), MemoryMetadata()]


@pytest.mark.parametrize(("name", "wrong"), cases(SqliteMetadata, CALLS))
def test_calls(tmp_path: Path, name: str, wrong: str) -> None:
    for store in stores(tmp_path):
        version = store.create("known", b"value")
        before = store.entries("")
        refuses(getattr(store, name), CALLS[name], wrong)
        assert store.entries("") == before
        assert store.put("known", b"more", version) > version
        store.close()


def test_the_store_in_memory_has_the_same_calls() -> None:
    for_tests = {"killed": ("rng",), "crashed": ("rng",)}
    assert arguments_of(MemoryMetadata) == {**arguments_of(SqliteMetadata), **for_tests}


@pytest.mark.parametrize("path", [None, 5, b"x", "", "a\0b", "\ud800", pytest.param(object(), id="object")], ids=ascii)
def test_paths(path: Path) -> None:
    with pytest.raises(BadInput):
        SqliteMetadata(path)


def test_whatever_is_called_on_a_closed_store(tmp_path: Path) -> None:
    store = SqliteMetadata(tmp_path / "m.sqlite")
    store.close()
    store.close()
    for name, arguments in CALLS.items():
        with pytest.raises(Closed):
            getattr(store, name)(**needed(getattr(store, name), arguments))


def test_what_the_file_system_says_is_typed(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("no directory")
    for path in (tmp_path / "directory", tmp_path / "nowhere" / "m.sqlite", tmp_path / "file" / "m.sqlite"):
        with pytest.raises((StorageFailed, Corruption)):
            SqliteMetadata(path)


def test_a_file_that_was_changed_under_an_open_store_is_typed(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    store = SqliteMetadata(path)
    store.create("known", b"value")
    other = sqlite3.connect(path)
    other.execute("DROP TABLE entries")
    other.commit()
    other.close()
    for name, arguments in CALLS.items():
        if name != "transaction":
            with pytest.raises(PenstockError):
                getattr(store, name)(**needed(getattr(store, name), arguments))
    store.close()


@pytest.mark.parametrize("statement", ["PRAGMA user_version=7", "PRAGMA application_id=7"])
def test_an_empty_file_of_another_program_is_neither_taken_over_nor_switched_to_wal(
    tmp_path: Path, statement: str
) -> None:
    """It has no table yet; its header says all the same that it is not ours."""
    path = tmp_path / "m.sqlite"
    foreign = sqlite3.connect(path)
    foreign.execute(statement)
    foreign.close()
    before = path.read_bytes()
    assert before[18:20] == b"\1\1", "not in WAL mode"
    with pytest.raises(Corruption, match="not a metadata store"):
        SqliteMetadata(path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["m.sqlite"]

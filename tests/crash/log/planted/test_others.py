"""Mistakes where several meet: readers, openers and owners of other processes, truncations, cursors under an old name."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.files import Files
from penstock.log import LogReader, Position
from penstock.log.append.ledger_sequence import LedgerSequence
from penstock.log.cursors import opening, table
from penstock.log.cursors.registry import find, forget
from penstock.log.frames.end_file import EndFile
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.records.generations import record_log_files
from penstock.log.retention.truncate import Truncator
from penstock.metadata import Create, Delete, MemoryMetadata, Operation, Versioned
from tests.crash.framework.planted import Bug, Patch, PlantedBugs, must_be_caught
from tests.crash.framework.program import DEFAULT_FAULTS
from tests.crash.log.explorer import EXPLORER

BUGS = PlantedBugs()


@BUGS
def a_version_is_given_again_after_a_deletion(patch: Patch) -> None:
    transaction = MemoryMetadata.transaction

    def repeating(self: MemoryMetadata, operations: Sequence[Operation]) -> int:
        version = transaction(self, operations)
        shared: Any = self._shared
        gone = shared.__dict__.setdefault("gone", {})
        for operation in operations:
            if isinstance(operation, Delete):
                gone[operation.key] = operation.expected
            elif isinstance(operation, Create) and operation.key in gone:
                version = gone.pop(operation.key)
                entries = {**shared.content.entries, operation.key: Versioned(operation.value, version)}
                shared.content = shared.content._replace(entries=entries)
        return version

    patch(MemoryMetadata, "transaction", repeating)


@BUGS
def a_truncation_is_not_told_to_readers(patch: Patch) -> None:
    def silent(self: LedgerSequence, last: Position) -> None:
        assert self._ledger is not None
        self.last = last
        self.publish(self._ledger, last)

    patch(LedgerSequence, "rewind_end", silent)


@BUGS
def a_truncation_writes_no_slot(patch: Patch) -> None:
    def silent(self: LedgerSequence, last: Position) -> None:
        self.last = last

    patch(LedgerSequence, "rewind_end", silent)


@BUGS
def a_reader_does_not_follow_a_truncation(patch: Patch) -> None:
    def unaware(self: LogReader, slot: Any) -> bool:
        return slot is None or (self._views.find(slot.file_id) is None and slot != self._reloaded_for)

    patch(LogReader, "_is_behind", unaware)


@BUGS
def a_truncation_keeps_the_rest_of_its_ledger(patch: Patch) -> None:
    def whole(self: Truncator, info: LedgerInfo, entries: int) -> LedgerInfo:
        return info

    patch(Truncator, "_sealed_at", whole)


@BUGS
def a_truncation_does_not_look_where_cursors_stand(patch: Patch) -> None:
    patch(Truncator, "_check_holds", lambda *_: None)


@BUGS
def a_deleted_cursor_keeps_its_records(patch: Patch) -> None:
    patch(opening, "record_log_files", lambda *_: [])


@BUGS
def a_cursor_is_forgotten_before_its_records_are_gone(patch: Patch) -> None:
    def hasty(reader: LogReader, directory: Path, name: str, files: Files) -> bool:
        known = find(reader.metadata, reader.name, name)
        if known is None:
            return False
        forget(reader.metadata, reader.name, known)
        for path in record_log_files(files, directory, name):
            files.remove(path)
        files.sync_directory(directory)
        return True

    for module in (opening, table):
        patch(module, "delete_durable", hasty)


@BUGS
def an_owner_does_not_look_at_the_fence(patch: Patch) -> None:
    patch(EndFile, "check", lambda _self: None)


@BUGS
def a_refused_append_is_not_kept_from_coming_back(patch: Patch) -> None:
    """The record that ends a failed ledger for good is tried once, and its failure is passed over."""

    def careless(self: LedgerSequence) -> None:
        with contextlib.suppress(Exception):
            self._end_file.sync()

    patch(LedgerSequence, "write_final_end", careless)


_NEED_FAULTS = (a_refused_append_is_not_kept_from_coming_back,)


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.__name__)
def test_a_planted_bug_is_caught(planted: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    must_be_caught(EXPLORER, planted, monkeypatch, faults=0.9 if planted in _NEED_FAULTS else DEFAULT_FAULTS)


def test_no_planted_bug_was_lost() -> None:
    assert len(BUGS) == 10

"""Mistakes that other projects made, planted one at a time into the log: the log's explorer must catch each of them."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.errors import OutcomeUnknown, StorageFailed, Unavailable
from penstock.files import Buffer
from penstock.files.memory import MemoryFile, MemoryFiles
from penstock.log.append.ledger_sequence import LedgerSequence
from penstock.log.frames import check as frame_check
from penstock.log.frames import format as frame
from penstock.log.frames import reader as frame_reader
from penstock.log.frames import writer as frame_writer
from penstock.log.frames.end_file import EndFile
from penstock.log.frames.writer import FrameWriter
from penstock.log.ledgers.holds import read_holds
from penstock.log.ledgers.info import LedgerInfo, LedgerList, Offload
from penstock.log.offload.format import part_name
from penstock.log.offload.steps import OffloadSteps
from penstock.log.records import generations as record_generations
from penstock.log.records.opening import GenerationMaker
from penstock.log.retention.trim import Trimmer
from penstock.metadata import MemoryMetadata, Operation, Put
from penstock.objects import directory
from tests.crash.framework.planted import Bug, Patch, PlantedBugs, must_be_caught, replace_without_sync
from tests.crash.framework.program import DEFAULT_FAULTS
from tests.crash.log.explorer import EXPLORER

BUGS = PlantedBugs()


@BUGS
def acknowledged_without_a_sync(patch: Patch) -> None:
    sync = MemoryFile.datasync

    def datasync(self: MemoryFile) -> None:
        if not self.path.name.startswith("ledger-"):
            sync(self)

    patch(MemoryFile, "datasync", datasync)


@BUGS
def no_directory_is_synced(patch: Patch) -> None:
    patch(MemoryFiles, "sync_directory", lambda _self, _path: None)


@BUGS
def the_checksum_leaves_out_the_header(patch: Patch) -> None:
    """The CRC of nothing is 0, and so is a sector that was never written."""
    encode = frame_writer.encode_frame

    def encode_frame(*arguments: Any) -> tuple[list[Buffer], int]:
        buffers, size = encode(*arguments)
        body = b"".join(map(bytes, buffers[1:-1]))
        return [*buffers[:-1], frame._U32.pack(frame.google_crc32c.value(body))], size

    def decode_header(raw: bytes, at: int, _file_id: int) -> frame.Header:
        if len(raw) < at + frame.HEADER_BYTES:
            raise frame.BadFrame("the header is cut")
        return frame.Header(*frame.HEADER.unpack_from(raw, at)[4:])

    def verify_body(raw: bytes, at: int, header: frame.Header) -> bytes:
        body = at + frame.HEADER_BYTES
        end = body + header.data_len + header.changes_len
        if end + 4 > len(raw) or frame.google_crc32c.value(raw[body:end]) != frame._U32.unpack_from(raw, end)[0]:
            raise frame.BadFrame("the checksum does not match")
        return raw[body + header.data_len : end]

    for name, function in (
        ("encode_frame", encode_frame),
        ("decode_header", decode_header),
        ("verify_body", verify_body),
    ):
        for module in log_modules():
            if hasattr(module, name):
                patch(module, name, function)
    patch(frame_check, "_KERNELS", "")  # they know the true format
    patch(frame_check, "_PYTHON_BYTES_MAX", 1 << 30)


@BUGS
def a_failed_sync_is_tried_again(patch: Patch) -> None:
    sync = MemoryFile.datasync

    def datasync(self: MemoryFile) -> None:
        try:
            sync(self)
        except StorageFailed:
            self._poisoned = None
            sync(self)

    patch(MemoryFile, "datasync", datasync)


@BUGS
def the_epoch_is_used_before_it_is_durable(patch: Patch) -> None:
    """The change that raises the epoch reaches the disk with the next change only."""
    transaction = MemoryMetadata.transaction

    def late(self: MemoryMetadata, operations: Sequence[Operation]) -> int:
        before = self._shared.content
        version = transaction(self, operations)
        raises = any(isinstance(o, Put) and o.key.startswith("log/")
                     and epoch(o.value) > epoch(before.entries[o.key].value) for o in operations)  # fmt: skip
        self._shared.others = (before,) if raises else ()
        return version

    def epoch(raw: bytes) -> int:
        return int(json.loads(raw)["epoch"])

    patch(MemoryMetadata, "transaction", late)


@BUGS
def an_unknown_outcome_counts_as_not_made(patch: Patch) -> None:
    """The store goes on after a commit that failed: what a reader sees is what was before it, until a crash."""
    transaction = MemoryMetadata.transaction

    def believing(self: MemoryMetadata, operations: Sequence[Operation]) -> int:
        try:
            return transaction(self, operations)
        except OutcomeUnknown as error:
            self._unknown = None
            raise Unavailable(str(error)) from error

    patch(MemoryMetadata, "transaction", believing)


@BUGS
def an_unknown_outcome_counts_as_made(patch: Patch) -> None:
    transaction = MemoryMetadata.transaction

    def believing(self: MemoryMetadata, operations: Sequence[Operation]) -> int:
        try:
            return transaction(self, operations)
        except OutcomeUnknown:
            shared = self._shared
            before, (*rest, made) = shared.content, shared.others
            self._unknown, shared.content, shared.others = None, made, (*rest, before)
            return made.version

    patch(MemoryMetadata, "transaction", believing)


@BUGS
def a_file_that_an_unknown_change_may_name_is_removed(patch: Patch) -> None:
    switch = LedgerSequence._switch

    def hasty(self: LedgerSequence, sealed: LedgerInfo) -> None:
        number = self._catalog.list.next_ledger - 1
        try:
            switch(self, sealed)
        except OutcomeUnknown:
            self._store.delete(number)
            raise

    patch(LedgerSequence, "_switch", hasty)


@BUGS
def the_end_is_published_before_the_sync(patch: Patch) -> None:
    publish = EndFile.publish
    waiting: list[MemoryFile] = []

    def sync(self: FrameWriter) -> None:
        file: Any = self.file
        true_sync = file.datasync
        file.datasync = lambda: waiting.append(true_sync)
        try:
            writer_sync(self)
        finally:
            del file.datasync

    def published_first(self: EndFile, *arguments: Any) -> None:
        publish(self, *arguments)
        while waiting:
            waiting.pop()()  # type: ignore[operator]

    writer_sync = FrameWriter.sync
    patch(FrameWriter, "sync", sync)
    patch(EndFile, "publish", published_first)


@BUGS
def an_ack_completes_before_it_is_durable(patch: Patch) -> None:
    """Each group of acks is synced with the next one only."""
    sync = MemoryFile.datasync

    def datasync(self: MemoryFile) -> None:
        if not self.path.name.endswith(".rlog"):
            sync(self)
            return
        last: Any = getattr(self, "late", None)
        self.late = list(self._node.pending)  # type: ignore[attr-defined]
        if last:
            waiting, self._node.pending[:] = self._node.pending[len(last) :], last
            sync(self)
            self._node.pending[:] = waiting
            self.late = waiting  # type: ignore[attr-defined]

    patch(MemoryFile, "datasync", datasync)


@BUGS
def a_ledger_is_deleted_before_its_tombstone(patch: Patch) -> None:
    remove = Trimmer._remove

    def hasty(self: Trimmer, choose: Any) -> list[int]:
        for number in choose(self._catalog.list, read_holds(self._metadata, self._log_name).holds):
            self._store.delete(number)
        return remove(self, choose)

    patch(Trimmer, "_remove", hasty)


@BUGS
def a_generation_gets_its_header_before_its_frames_are_synced(patch: Patch) -> None:
    def finish(self: GenerationMaker, made: Any) -> None:
        made.writer._flush_small()
        waiting, made.writer._waiting = made.writer._waiting, []
        made.writer.file.append(waiting)
        made.writer.synced_end = made.writer.end
        self._files.sync_directory(self._directory)

    patch(GenerationMaker, "finish", finish)


@BUGS
def a_generation_is_removed_before_the_next_has_its_header(patch: Patch) -> None:
    write_header = GenerationMaker.write_header

    def late(self: GenerationMaker, made: Any) -> None:
        for number in self._generations.listed():
            if number < made.writer.file_id:
                self._files.remove(self._generations.path(number))
        write_header(self, made)

    patch(GenerationMaker, "write_header", late)


@BUGS
def a_file_is_renamed_before_it_is_synced(patch: Patch) -> None:
    patch(record_generations, "replace_file", replace_without_sync)


@BUGS
def recovery_cuts_below_the_synced_end(patch: Patch) -> None:
    find_end = frame_reader.find_end

    def short(*arguments: Any) -> Any:
        end, index = find_end(*arguments)
        if len(index.offsets):
            end = int(index.offsets[-1])
            index.offsets = index.offsets[:-1]
        return end, index

    for module in log_modules():
        if hasattr(module, "find_end"):
            patch(module, "find_end", short)


@BUGS
def a_ledger_number_is_used_again(patch: Patch) -> None:
    """The next number is taken from the files that the list names, not from what was ever reserved."""
    decode = LedgerList.decode

    def forgetful(raw: bytes) -> LedgerList:
        listed = decode(raw)
        return dataclasses.replace(listed, next_ledger=max((info.id for info in listed.ledgers), default=0) + 1)

    patch(LedgerList, "decode", staticmethod(forgetful))


@BUGS
def objects_are_put_before_the_mark(patch: Patch) -> None:
    """Objects that a crash leaves are then in no list, and stay for ever."""
    mark = OffloadSteps._mark

    def late(self: OffloadSteps, info: LedgerInfo, offload: Offload) -> None:
        name = part_name(self._catalog.list.uuid, info.id, offload.attempt, 0)
        self._store.objects(offload.url).put(name, b"early")
        mark(self, info, offload)

    patch(OffloadSteps, "_mark", late)


@BUGS
def an_offload_is_complete_before_its_objects_are_there(patch: Patch) -> None:
    put, complete = OffloadSteps._put, OffloadSteps._complete
    waiting: list[tuple[Any, ...]] = []

    def finished(self: OffloadSteps, *arguments: Any) -> None:
        complete(self, *arguments)
        while waiting:
            put(*waiting.pop(0))

    patch(OffloadSteps, "_put", staticmethod(lambda *arguments: waiting.append(arguments)))
    patch(OffloadSteps, "_complete", finished)


@BUGS
def a_local_ledger_goes_before_its_copy_is_complete(patch: Patch) -> None:
    complete = OffloadSteps._complete

    def hasty(self: OffloadSteps, info: LedgerInfo, *rest: Any) -> None:
        self._store.delete(info.id)
        complete(self, info, *rest)

    patch(OffloadSteps, "_complete", hasty)


@BUGS
def an_object_is_renamed_before_it_is_synced(patch: Patch) -> None:
    patch(directory, "replace_file", replace_without_sync)


_NEED_FAULTS = (
    a_failed_sync_is_tried_again,
    an_unknown_outcome_counts_as_not_made,
    an_unknown_outcome_counts_as_made,
    a_file_that_an_unknown_change_may_name_is_removed,
)


def log_modules() -> list[Any]:
    return [module for name, module in sys.modules.items() if name.startswith("penstock.log.")]


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.__name__)
def test_a_planted_bug_is_caught(planted: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = 0.9 if planted in _NEED_FAULTS else DEFAULT_FAULTS
    must_be_caught(EXPLORER, planted, monkeypatch, faults=faults)


def test_no_planted_bug_was_lost() -> None:
    assert len(BUGS) == 20

"""The steps of an offload, as docs/formats/offload.md numbers them, for one ledger; and the deletion of discarded objects.

A step changes the ledger list only if the list still holds the same attempt. So a trim, a truncation or another owner that
comes in between makes the step useless, but never wrong. An attempt that fails is given up: the ledger loses its mark, and
the objects are discarded, in one change of the list.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator

from penstock.clock import Clock
from penstock.errors import Corruption, PenstockError, Unavailable
from penstock.log.frames.file_header import corruption
from penstock.log.frames.format import crc32c
from penstock.log.frames.reader import rebuild_index
from penstock.log.ledgers.catalog import LedgerCatalog
from penstock.log.ledgers.footer import encode_footer
from penstock.log.ledgers.info import LedgerInfo, LedgerList, Offload
from penstock.log.ledgers.store import LedgerFile
from penstock.log.offload import format as offload_format
from penstock.log.offload.format import OffloadIndex, checksum_of, index_name, object_names, part_name
from penstock.log.offload.ledger import OffloadedLedger, read_index
from penstock.log.offload.store import TieredLedgerStore
from penstock.objects import ObjectStore
from penstock.observe.metrics import METRICS


class Superseded(Exception):
    """The ledger was trimmed, truncated or offloaded meanwhile. This attempt is useless; that is no error."""


class OffloadSteps:
    """Not thread-safe: one caller at a time. `check` raises where the work must stop: the log closes, or has another owner."""

    def __init__(
        self,
        *,
        part_bytes: int,
        clock: Clock,
        catalog: LedgerCatalog,
        store: TieredLedgerStore,
        check: Callable[[], None],
    ) -> None:
        self._part_bytes = part_bytes
        self._clock = clock
        self._catalog = catalog
        self._store = store
        self._check = check
        self.failures = 0
        self.failed_deletes = 0

    def copy(self, info: LedgerInfo, url: str, report: Callable[[int], None]) -> None:
        """Steps 1 to 4. `report` is called with the number of bytes copied so far. Raises `Superseded`."""
        self._check()
        started = time.perf_counter()
        block = offload_format.BLOCK_BYTES
        part_bytes = -(-self._part_bytes // block) * block
        offload = Offload(uuid.uuid4().hex, url, "uploading", part_bytes, -(-info.frames_end // part_bytes))
        objects = self._store.objects(url)
        try:
            self._mark(info, offload)  # 1
            index = self._put_parts(info, offload, objects, report)  # 2
            raw = index.encode()
            self._check_attempt(info, offload)
            self._put(objects, index_name(index.log, info.id, offload.attempt), raw)  # 3
            self._complete(info, offload, raw)  # 4
        except BaseException as error:
            if not isinstance(error, Superseded):
                self._failed()
            self._give_up(offload.attempt)
            raise
        METRICS.log_offload_ledgers.inc()
        METRICS.log_offload_seconds.observe(time.perf_counter() - started)

    def _mark(self, info: LedgerInfo, offload: Offload) -> None:
        def mark(listed: LedgerList) -> LedgerList:
            now = _ledger(listed, info.id)
            if now.is_offloaded or not _same_length(now, info):
                raise Superseded
            return listed.with_offload(info.id, offload)

        self._catalog.change(mark)

    def _put_parts(
        self, info: LedgerInfo, offload: Offload, objects: ObjectStore, report: Callable[[int], None]
    ) -> OffloadIndex:
        log, block = self._catalog.list.uuid, offload_format.BLOCK_BYTES
        checksums: list[int] = []
        with self._opened(info) as file:
            entries = rebuild_index(file, info.id, info.entries, info.frames_end)  # every frame is checked
            report(0)
            for part in range(offload.parts):
                self._check_attempt(info, offload)
                start = part * offload.part_bytes
                size = min(offload.part_bytes, info.frames_end - start)
                raw = file.read_at(start, size)
                if len(raw) != size:
                    raise corruption(file.path, start + len(raw), "the file ends here")
                view = memoryview(raw)
                checksums += [crc32c(view[at : at + block]) for at in range(0, size, block)]
                self._put(objects, part_name(log, info.id, offload.attempt, part), raw)
                report(start + size)
        footer = encode_footer(info.id, info.frames_end, entries)
        return OffloadIndex(
            log, offload.attempt, info.id, info.entries, info.frames_end, offload.part_bytes, block, checksums, footer
        )

    @staticmethod
    def _put(objects: ObjectStore, name: str, raw: bytes) -> None:
        started = time.perf_counter()
        objects.put(name, raw)
        METRICS.log_offload_put_seconds.observe(time.perf_counter() - started)
        METRICS.log_offload_bytes.inc(len(raw))

    def _complete(self, info: LedgerInfo, offload: Offload, index: bytes) -> None:
        def complete(listed: LedgerList) -> LedgerList:
            if not _same_length(_same_attempt(listed, info.id, offload.attempt), info):
                raise Superseded  # the log was truncated meanwhile
            copied = dataclasses.replace(
                offload,
                state="copied",
                copied_ms=self._clock.wall_ms(),
                index_bytes=len(index),
                index_crc=checksum_of(index),
            )
            return listed.with_offload(info.id, copied)

        self._check_attempt(info, offload)
        self._catalog.change(complete)

    def _give_up(self, attempt: str) -> None:
        """Takes the mark back. Where the list cannot be changed now, the next attempt or the next owner does it."""

        def give_up(listed: LedgerList) -> LedgerList:
            for info in listed.ledgers:
                if info.offload is not None and info.offload.attempt == attempt and not info.is_offloaded:
                    return listed.with_offload(info.id, None)
            return listed

        with contextlib.suppress(PenstockError):
            self._catalog.change(give_up)

    def move(self, info: LedgerInfo) -> None:
        """Step 5, once the lag is over: the objects alone count from here on, and the local file may be removed.

        Raises `Corruption` where the copy is damaged. If the local file is sound, the copy is discarded, to be made again.
        """
        self._check()
        assert info.offload is not None
        attempt = info.offload.attempt
        try:
            self._read_copy(info)
        except (Corruption, FileNotFoundError) as error:
            self._failed()
            with self._opened(info) as file:
                rebuild_index(file, info.id, info.entries, info.frames_end)

            def discard(listed: LedgerList) -> LedgerList:
                _same_attempt(listed, info.id, attempt)
                return listed.with_offload(info.id, None)

            self._catalog.change(discard)
            raise Corruption(
                f"the offloaded copy of ledger {info.id} is damaged: {error}",
                hint="its local file is sound and stays; the ledger is copied again by the next offload",
            ) from error

        def moved(listed: LedgerList) -> LedgerList:
            now = _same_attempt(listed, info.id, attempt)
            assert now.offload is not None
            return listed.with_offload(info.id, dataclasses.replace(now.offload, state="moved"))

        self._catalog.change(moved)

    def _read_copy(self, info: LedgerInfo) -> None:
        """Reads and checks every byte of the copy: after this the local file is removed."""
        assert info.offload is not None
        objects = self._store.objects(info.offload.url)
        index = read_index(objects, self._catalog.list.uuid, info)
        ledger = OffloadedLedger(objects, index)
        in_part = index.part_bytes // index.block_bytes
        for first in range(0, len(index.checksums), in_part):
            self._check()
            ledger.blocks(first, min(first + in_part, len(index.checksums)) - 1)

    def discard(self) -> Exception | None:
        """Deletes discarded objects, then their tombstones. Returns why some could not be deleted: they stay for the next time."""
        log = self._catalog.list.uuid
        done = set()
        failure: Exception | None = None
        for one in self._catalog.list.discarded:
            try:
                self._store.objects(one.url).delete(object_names(log, one.ledger, one.attempt, one.parts))
                done.add(one)
                METRICS.log_offload_deletes.inc()
            except (PenstockError, OSError) as error:
                self.failed_deletes += 1
                failure = error
        if done:

            def forget(listed: LedgerList) -> LedgerList:
                return dataclasses.replace(listed, discarded=tuple(one for one in listed.discarded if one not in done))

            self._catalog.change(forget)
        return failure

    def _failed(self) -> None:
        self.failures += 1
        METRICS.log_offload_errors.inc()

    def _check_attempt(self, info: LedgerInfo, offload: Offload) -> None:
        self._check()
        _same_attempt(self._catalog.list, info.id, offload.attempt)

    @contextlib.contextmanager
    def _opened(self, info: LedgerInfo) -> Iterator[LedgerFile]:
        try:
            file = self._store.open_local(info)
        except FileNotFoundError as error:
            _ledger(self._catalog.list, info.id)
            path = error.filename or f"ledger {info.id}"
            raise corruption(path, 0, "the ledger list names this file, but it is missing") from error
        try:
            yield file
        except OSError as error:
            raise Unavailable(
                f"ledger {info.id} cannot be read: {error}", hint="check the disk; it is tried again by itself"
            ) from error
        finally:
            file.close()


def _ledger(listed: LedgerList, ledger_id: int) -> LedgerInfo:
    for info in listed.ledgers:
        if info.id == ledger_id:
            return info
    raise Superseded


def _same_attempt(listed: LedgerList, ledger_id: int, attempt: str) -> LedgerInfo:
    info = _ledger(listed, ledger_id)
    if info.offload is None or info.offload.attempt != attempt:
        raise Superseded
    return info


def _same_length(one: LedgerInfo, other: LedgerInfo) -> bool:
    return (one.entries, one.frames_end) == (other.entries, other.frames_end)

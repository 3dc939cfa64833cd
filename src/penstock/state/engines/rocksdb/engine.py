"""The `rocksdb` state engine, through rocksdict: for state beyond memory (docs/formats/checkpoint.md, last section).

Changes wait in the same layers in memory as those of `native`, and go into a RocksDB database at each checkpoint. Its
write-ahead log is off. Reads go to the newest checkpoint, opened read-only: it never changes, so snapshots are stable
(rocksdict's own snapshots do not iterate as of their moment). RocksDB writes and syncs its files itself, not through
`Files`; only the names of checkpoints go through it. So this engine needs the real file system.

A checkpoint: (1) one atomic batch of the changes and the position; (2) RocksDB's own checkpoint of that, under a
temporary name; (3) rename, and sync of the directory; (4) checkpoints that are no longer kept are renamed, the
directory is synced, and they are removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import Closed, Corruption, NotSupported, PenstockError, StorageFailed, Unavailable
from penstock.files import RealFiles, read_file
from penstock.log.position import Position
from penstock.state.engines.checkpointed import CheckpointedEngine, EngineOptions
from penstock.state.engines.engine import CheckpointInfo, Finding
from penstock.state.engines.layered import FrozenLayers
from penstock.state.engines.overlay import NO_BASE, Base, Layer
from penstock.state.engines.refusals import raise_refusal
from penstock.state.engines.rocksdb.base import NAMESPACE, POSITION, Database, RocksBase, load, options_with

if TYPE_CHECKING:
    from rocksdict import Cache

DIRECTORY = "rocksdb"
_VERSION = 1
_CHECKPOINT = re.compile(r"checkpoint-([0-9a-f]{16})")


class RocksEngine(CheckpointedEngine):
    name = "rocksdb"

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        load()
        if not isinstance(options.files, RealFiles):
            raise NotSupported("RocksDB has a file layer of its own: it needs the real file system")
        self._directory = options.directory / DIRECTORY
        self._damaged: list[Finding] = []
        self._kept: list[tuple[int, CheckpointInfo]] = []  # number and what it is, newest first
        self._number = 0
        self._cache: Cache = load().Cache(max(options.settings.cache_bytes, 1))
        self._live: Database | None = None  # where batches are written; opened at the first checkpoint
        self._live_number = 0
        self._load(options.at, verify=options.verify)
        if options.at is not None and not options.read_only:
            self._drop_after(options.at)

    @property
    def damaged(self) -> Sequence[Finding]:
        return tuple(self._damaged)

    def checkpoints(self) -> list[CheckpointInfo]:
        return [info for _, info in self._kept]

    def verify(self) -> Iterator[Finding]:
        for number in self._numbers():
            try:
                RocksBase(Database(self._path(number), self._cache, read_only=True)).read_all()
            except Exception as error:
                raise_refusal(self._path(number), error)
                if self._path(number).exists():  # else the owner removed it meanwhile
                    yield Finding(str(self._path(number)), 0, str(error))

    def scrub(self, pause: Callable[[int], None]) -> list[Finding]:
        """RocksDB has checksums and no parity: damage raises `Corruption`, also a file that is gone."""
        for number, info in list(self._kept):
            try:
                RocksBase(Database(self._path(number), self._cache, read_only=True)).read_all()
            except Exception as error:  # rocksdict raises plain ones
                with self._disk:
                    if number not in [other for other, _ in self._kept]:
                        continue  # a newer checkpoint took its place meanwhile
                if isinstance(error, PenstockError):
                    raise
                raise_refusal(self._path(number), error)
                raise Corruption(
                    f"{self._path(number)}: {error}", hint="the state is read again from another checkpoint"
                ) from error
            pause(info.bytes)
        return []

    def mend(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def compact(self) -> None:
        self._refuse_reader("a compaction")
        with self._disk:
            if self._live is not None:
                self._live.db.compact_range(None, None)
        self._retired.drain()

    def close(self) -> None:
        self._close_stack()
        with self._disk:
            self._close_live()
        self._retired.drain()

    # -- `_disk` held ----------------------------------------------------------------------------------------------

    def _write(self, frozen: FrozenLayers, layers: Sequence[Layer], base: Base, position: Position) -> CheckpointInfo:
        try:
            return self._write_checkpoint(frozen, layers, base, position)
        except Closed:
            raise
        except Exception as error:  # rocksdict raises plain ones
            self._close_live()  # RocksDB takes nothing more there once the disk failed: the next checkpoint begins with another
            raise StorageFailed(f"{self._directory}: {error}", hint="earlier checkpoints are in force") from error

    def _write_checkpoint(
        self, frozen: FrozenLayers, layers: Sequence[Layer], base: Base, position: Position
    ) -> CheckpointInfo:
        started, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        library = load()
        live = self._live
        if live is None:
            live = self._live = self._make_live(self._kept[0][0] if self._kept else None)
        batch = library.WriteBatch(raw_mode=True)
        if not isinstance(base, RocksBase):
            batch.delete_range(b"", b"\xff" * 64)  # the first checkpoint, or one of a state that was restored
        written = 0
        for layer in reversed(layers):
            for namespace, table in layer.tables.items():
                prefix = NAMESPACE.pack(namespace)
                for key, value in table.items():
                    if value is None:
                        batch.delete(prefix + key)
                    else:
                        batch.put(prefix + key, value)
                        written += len(value)
                    written += len(key)
        record = {"version": _VERSION, "position": str(position), "wall_ms": wall_ms, "bytes_written": written}
        batch.put(POSITION, json.dumps(record).encode())
        options = library.WriteOptions()
        options.disable_wal = True
        live.db.write(batch, options)
        live.db.flush()
        self._check_not_abandoned()
        self._number += 1
        temporary = self._directory / f".checkpoint-{self._number:016x}.tmp"
        self._remove(temporary)
        library.Checkpoint(live.db).create_checkpoint(str(temporary))
        self._check_not_abandoned()
        self._files.rename(temporary, self._path(self._number))
        self._files.sync_directory(self._directory)
        written_base = RocksBase(Database(self._path(self._number), self._cache, read_only=True))
        info = CheckpointInfo(
            position, wall_ms, live.keys(), live.sst_bytes(), written, round(self._clock.monotonic() - started, 6)
        )
        self._put_below(frozen, layers, written_base)
        self._check_not_abandoned()
        older = [other for other in self._kept if other[1].position < position]
        self._keep([(self._number, info), *older][: self._settings.checkpoints_kept])
        return info

    def _load(self, at: Position | None, *, verify: bool) -> None:
        """Goes to the newest good checkpoint, at or below `at`; damaged ones are stepped over."""
        self._close_live()
        self._kept, self._damaged = [], []
        numbers = self._numbers()
        self._number = max([self._number, *numbers])
        base: RocksBase | None = None
        for number in sorted(numbers, reverse=True):
            try:
                database = Database(self._path(number), self._cache, read_only=True)
                record = database.record()
                if record is None:
                    raise Corruption("it has no position")
                if record["version"] != _VERSION:
                    raise NotSupported(
                        f"version {record['version']} of a state checkpoint is not known",
                        hint="a newer Penstock wrote it: upgrade",
                    )
                position = Position.parse(record["position"])
                if at is not None and position > at:
                    continue
                if verify:
                    RocksBase(database).read_all()
                if base is None:
                    base = RocksBase(database)
            except (NotSupported, Unavailable, StorageFailed):
                raise
            except Exception as error:
                raise_refusal(self._path(number), error)
                self._damaged.append(Finding(str(self._path(number)), 0, str(error)))
                continue
            info = CheckpointInfo(
                position, record["wall_ms"], database.keys(), database.sst_bytes(), record["bytes_written"], 0.0
            )
            self._kept.append((number, info))
            if len(self._kept) == (1 if self._read_only else self._settings.checkpoints_kept):
                break
        self._go_to(base or NO_BASE, self._kept[0][1].position if self._kept else None)

    def _make_live(self, number: int | None) -> Database:
        """A new database with the content of that checkpoint: tables are hard links, the rest is small and copied."""
        self._files.make_directory(self._directory)
        names = self._files.list(self._directory)
        for name in names:
            if name.startswith(("live-", "gone-", ".")):
                self._remove(self._directory / name)
        taken = [int(name[5:], 16) for name in names if name.startswith("live-")]
        self._live_number = max([self._live_number, *taken]) + 1
        live = self._directory / f"live-{self._live_number:016x}"
        self._files.make_directory(live)
        if number is not None:
            for name in self._files.list(self._path(number)):
                if name.endswith(".sst"):
                    os.link(self._path(number) / name, live / name)
                elif name == "CURRENT" or name.startswith(("MANIFEST-", "OPTIONS-")):
                    file = self._files.create(live / name)
                    try:
                        file.append([read_file(self._files, self._path(number) / name)])
                    finally:
                        file.close()
        return Database(live, self._cache, read_only=False)

    def _close_live(self) -> None:
        if self._live is not None:
            path, live = self._live.path, self._live
            self._live = None
            with contextlib.suppress(Exception):  # a full disk: all that counts of it is in checkpoints, or in the log
                live.db.close()
            del live
            self._remove(path)

    def _keep(self, kept: list[tuple[int, CheckpointInfo]]) -> None:
        """Removes every other checkpoint. It is renamed first: half a checkpoint must never look like one."""
        self._kept = kept
        wanted = {number for number, _ in kept}
        gone = [number for number in self._numbers() if number not in wanted]
        for number in gone:
            self._files.rename(self._path(number), self._directory / f"gone-{number:016x}")
        if gone:
            self._files.sync_directory(self._directory)
        for name in self._files.list(self._directory):
            if name.startswith("gone-"):
                self._remove(self._directory / name)

    def _drop_after(self, position: Position) -> None:
        wanted = [(number, info) for number, info in self._kept if info.position <= position]
        numbers = {number for number, _ in wanted}
        above = {number for number, info in self._kept if info.position > position}
        for number in self._numbers():  # checkpoints that were not opened may lie above `position` too
            if number not in numbers and number not in above:
                try:
                    record = Database(self._path(number), self._cache, read_only=True).record()
                    if record is not None and Position.parse(record["position"]) > position:
                        above.add(number)
                except Exception as error:  # a damaged one: its position is not known
                    raise_refusal(self._path(number), error)
        for number in above:
            self._files.rename(self._path(number), self._directory / f"gone-{number:016x}")
        if above:
            self._files.sync_directory(self._directory)
        self._load(position, verify=False)

    def _numbers(self) -> list[int]:
        found = (_CHECKPOINT.fullmatch(name) for name in self._files.list(self._directory))
        return [int(match[1], 16) for match in found if match]

    def _path(self, number: int) -> Path:
        return self._directory / f"checkpoint-{number:016x}"

    def _remove(self, path: Path) -> None:
        """Removes a database, as far as possible: one that another process has open stays until the next attempt."""
        with contextlib.suppress(Exception):
            load().Rdict.destroy(str(path), options_with(self._cache))  # refuses one that is open
            for name in self._files.list(path):
                self._files.remove(path / name)
            path.rmdir()

"""Binlog files on disk as a source: a directory, a file or a glob, in the order of their numbers.

With `follow` the last file is read as it grows, and the next one when it appears. A file that ends in the middle of an
event is damaged, unless it is the last one and may still grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.binlog.errors import BadEvent, too_large_event, type_name
from penstock.binlog.events import split_events
from penstock.binlog.types import EVENT_BYTES_MAX, HEADER_BYTES, MAGIC, MAGIC_ENCRYPTED, EventType
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.sources.position import SourcePosition, file_number
from penstock.sources.settings import BinlogFilesSettings
from penstock.sources.source import IDLE, Beginning, Chunk, SourceError

READ_BYTES = 8 << 20
_TICK_SECONDS = 0.05
_FORMAT_BYTES_MAX = 64 << 10  # real ones have a few hundred


class BinlogFilesSource:
    """Reads files that another program writes or has written."""

    def __init__(
        self, settings: BinlogFilesSettings, clock: Clock = SYSTEM_CLOCK, read_bytes: int = READ_BYTES
    ) -> None:
        self._path = settings.path
        self._follow = settings.follow
        self.lower_case_table_names = settings.lower_case_table_names
        self._clock = clock
        self._read_bytes = read_bytes
        self._closed = False
        self._read_to = 4
        self.name = f"binlog-files:{settings.path}"

    def begin(self, version: int) -> Beginning:
        """The start of the first file. Schemas come from its CREATE statements, or from full table maps."""
        del version
        return Beginning(SourcePosition(self._files()[0].name, 4, source=self.name))

    def end(self) -> SourcePosition:
        last = self._files()[-1]
        return SourcePosition(last.name, last.stat().st_size, source=self.name)

    def close(self) -> None:
        self._closed = True

    def resume(self, position: SourcePosition) -> SourcePosition:
        return position

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        path = self._find(position.file)
        start = position.pos
        grown = False  # the same file again, from where it ended before
        looked = 0  # how long it was when it was read again because of the next one
        while not self._closed:
            yield from self._file(path, start, grown=grown)
            following = self._after(path)
            if following is not None and looked < (size := path.stat().st_size) > self._read_to:
                # Written after its end was read, and before the next one was there: now nobody writes to it any more.
                looked, grown, start = size, self._read_to > 4, max(start, self._read_to)
            elif following is not None:
                path, start, grown, looked = following, 4, False, 0
            elif self._follow:
                grown = self._read_to > 4
                start = max(start, self._read_to)
                yield IDLE
                self._clock.sleep(_TICK_SECONDS)
            else:
                yield IDLE
                return

    def _file(self, path: Path, start: int, *, grown: bool) -> Iterator[Chunk]:
        """The format description, then the events from `start` to the last complete one that the file has now.

        Of a file that has `grown` only the new events: a second format description means that the server started anew,
        and gave up the transaction that was open.
        """
        with path.open("rb", buffering=0) as file:
            head = file.read(4 + HEADER_BYTES)
            if head[:4] == MAGIC_ENCRYPTED:
                raise SourceError(f"{path} is encrypted", hint="SET GLOBAL encrypt_binlog = OFF")
            if len(head) < 4 + HEADER_BYTES and self._follow and MAGIC.startswith(head[:4]):
                self._read_to = start
                return  # just created: its first bytes are still to come
            if head[:4] != MAGIC:
                raise SourceError(f"{path} is not a binlog file: it starts with {head[:4].hex()}")
            if len(head) > 8 and head[8] != EventType.FORMAT_DESCRIPTION:
                raise SourceError(f"{path} does not start with a format description")
            if len(head) < 4 + HEADER_BYTES:
                raise _cut(path, 4, head[4:])
            size = int.from_bytes(head[13:17], "little")
            if size > _FORMAT_BYTES_MAX:
                raise BadEvent(
                    f"{size} bytes are more than a format description has ({_FORMAT_BYTES_MAX})",
                    offset=4,
                    event_type=EventType.FORMAT_DESCRIPTION,
                    file=str(path),
                )
            file.seek(4)
            description = file.read(size)
            if len(description) < size and self._follow:
                self._read_to = start
                return
            if len(description) < size:
                raise _cut(path, 4, description)
            if not grown:
                yield Chunk(np.frombuffer(description, np.uint8), path.name, 4)
            at = max(start, 4 + size)
            window, name = self._read_bytes, path.name
            while not self._closed:
                file.seek(at)
                data = file.read(window)
                try:
                    consumed = split_events(data, whole=False).consumed
                except BadEvent as error:
                    if error.offset:  # what is before it is whole
                        yield Chunk(np.frombuffer(data, np.uint8)[: error.offset], name, at)
                    raise error.at(at + error.offset, file=str(path)) from None
                if consumed:
                    yield Chunk(np.frombuffer(data, np.uint8)[:consumed], name, at)
                    name = ""  # a relay log tells the names of its source's files: the next chunk only goes on
                    at += consumed
                    window = self._read_bytes
                elif len(data) == window:
                    if int.from_bytes(data[9:13], "little") > EVENT_BYTES_MAX:
                        raise too_large_event(data[:HEADER_BYTES], str(path), at)
                    window *= 2  # the event is larger than the window
                else:
                    break
            self._read_to = at
            if data and not self._closed and (not self._follow or self._after(path) is not None):
                raise _cut(path, at, data)

    def _files(self) -> list[Path]:
        if self._path.is_dir():
            found = [p for p in self._path.iterdir() if p.is_file() and file_number(p.name) >= 0]
        elif self._path.is_file():
            found = [self._path]
        else:
            found = [p for p in self._path.parent.glob(self._path.name) if p.is_file() and p.suffix != ".index"]
        if not found:
            raise SourceError(
                f"no binlog files at {self._path}", hint="name a directory, a file, or a pattern such as bin.*"
            )
        return sorted(found, key=lambda p: (file_number(p.name), p.name))

    def _find(self, name: str) -> Path:
        files = self._files()
        for path in files:
            if path.name == name:
                return path
        raise SourceError(
            f"{name} is gone (oldest at {self._path}: {files[0].name}). Nothing was skipped",
            hint="put the file back, or start with a new state_dir",
        )

    def _after(self, path: Path) -> Path | None:
        files = self._files()
        at = next((i for i, p in enumerate(files) if p.name == path.name), None)
        return files[at + 1] if at is not None and at + 1 < len(files) else None


def _cut(path: Path, at: int, rest: bytes) -> SourceError:
    """The error for a file whose last event is not whole; `rest` is what is there of it."""
    kind = f" ({type_name(rest[4])})" if len(rest) > 4 else ""
    return SourceError(f"{path} ends in the middle of an event, at {at}{kind}", hint="copy the whole file")

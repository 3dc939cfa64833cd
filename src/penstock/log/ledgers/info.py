"""Ledgers: their names, their footer, and the list of them in the metadata store (docs/formats/ledger.md)."""

from __future__ import annotations

import dataclasses
import json
import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import google_crc32c
import numpy as np
import numpy.typing as npt

from penstock.errors import NotSupported
from penstock.log.frames.file_header import corruption
from penstock.log.frames.format import crc32c
from penstock.log.frames.writer import FrameIndex

FOOTER_MAGIC = b"PSX1"
TRAILER_BYTES = 64
_TRAILER = struct.Struct("<4sBBHQQQQIIQ4x")
_U32 = struct.Struct("<I")
_NAME = re.compile(r"ledger-(\d{16})\.log")

U64Array = npt.NDArray[np.uint64]


def ledger_name(ledger_id: int) -> str:
    return f"ledger-{ledger_id:016d}.log"


def ledger_id_of(name: str) -> int | None:
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class Offload:
    """A ledger's copy in an object store, or one that is on its way there (docs/formats/offload.md)."""

    attempt: str  # 32 hex digits, fresh for each try
    url: str
    state: str  # "uploading", "copied": both copies count, "moved": the objects alone do
    part_bytes: int
    parts: int
    copied_ms: int = 0
    index_bytes: int = 0
    index_crc: int = 0


@dataclass(frozen=True, slots=True)
class Discarded:
    """A tombstone of objects: nobody names them any more, and they are being deleted."""

    url: str
    ledger: int
    attempt: str
    parts: int


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """What the list knows of a ledger; the counts are there once it is sealed.

    `footer` is False where the ledger's file failed under its owner: it was sealed in the list alone, and its index is
    found by reading it.
    """

    id: int
    epoch: int
    state: str = "open"
    entries: int = 0
    frames_end: int = 0
    first_ms: int = 0
    last_ms: int = 0
    footer: bool = True
    offload: Offload | None = None

    @property
    def sealed(self) -> bool:
        return self.state == "sealed"

    @property
    def is_local(self) -> bool:
        """Whether its local file counts."""
        return self.offload is None or self.offload.state != "moved"

    @property
    def is_offloaded(self) -> bool:
        """Whether its objects count."""
        return self.offload is not None and self.offload.state != "uploading"

    def seal(self, index: FrameIndex, frames_end: int, *, footer: bool = True) -> LedgerInfo:
        return dataclasses.replace(
            self,
            state="sealed",
            entries=len(index.offsets),
            frames_end=frames_end,
            first_ms=index.first_ms,
            last_ms=index.last_ms,
            footer=footer,
        )

    def document(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        if self.footer:
            del fields["footer"]
        if self.offload is None:
            del fields["offload"]
        else:
            fields["offload"] = dataclasses.asdict(self.offload)
        return fields

    @classmethod
    def of(cls, document: dict[str, Any]) -> LedgerInfo:
        offload = document.get("offload")
        return cls(**{**document, "offload": Offload(**offload)}) if offload else cls(**document)


@dataclass(frozen=True, slots=True)
class LedgerList:
    """The log's one document in the metadata store."""

    uuid: UUID
    epoch: int
    next_ledger: int
    trimmed_below: int
    ledgers: tuple[LedgerInfo, ...]
    deleting: tuple[int, ...] = ()  # tombstones: trimmed, their files are being removed
    terminated: bool = False  # nothing is appended any more, ever
    deleted: bool = False  # the log itself is being removed
    properties: tuple[tuple[str, str], ...] = ()
    discarded: tuple[Discarded, ...] = ()

    def without(self, going: Collection[int]) -> LedgerList:
        """Tombstones in the place of these ledgers: of their files, and of their objects where they have any."""
        objects = tuple(_discarded(info) for info in self.ledgers if info.id in going and info.offload is not None)
        return dataclasses.replace(
            self,
            ledgers=tuple(info for info in self.ledgers if info.id not in going),
            deleting=(*self.deleting, *going),
            discarded=(*self.discarded, *objects),
        )

    def with_offload(self, ledger_id: int, offload: Offload | None) -> LedgerList:
        """Another attempt, or none, in the place of what the ledger had, whose objects are discarded; or its next state."""
        old = next(info for info in self.ledgers if info.id == ledger_id)
        same = old.offload is None or (offload is not None and offload.attempt == old.offload.attempt)
        return dataclasses.replace(
            self,
            ledgers=tuple(dataclasses.replace(info, offload=offload) if info is old else info for info in self.ledgers),
            discarded=self.discarded if same else (*self.discarded, _discarded(old)),
        )

    def without_uploads(self) -> LedgerList:
        """As a new owner takes it over: what the last one had not finished does not count."""
        listed = self
        for info in self.ledgers:
            if info.offload is not None and not info.is_offloaded:
                listed = listed.with_offload(info.id, None)
        return listed

    def encode(self) -> bytes:
        document: dict[str, Any] = {
            "format": 1,
            "uuid": str(self.uuid),
            "epoch": self.epoch,
            "next_ledger": self.next_ledger,
            "trimmed_below": self.trimmed_below,
            "ledgers": [ledger.document() for ledger in self.ledgers],
        }
        if self.deleting:
            document["deleting"] = list(self.deleting)
        if self.discarded:
            document["discarded"] = [dataclasses.asdict(one) for one in self.discarded]
        if self.properties:
            document["properties"] = dict(self.properties)
        for flag in ("terminated", "deleted"):
            if getattr(self, flag):
                document[flag] = True
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, raw: bytes) -> LedgerList:
        document: dict[str, Any] = json.loads(raw)
        if document["format"] != 1:
            raise NotSupported(
                f"the ledger list has format {document['format']}", hint="a newer Penstock wrote it: upgrade"
            )
        return cls(
            UUID(document["uuid"]),
            document["epoch"],
            document["next_ledger"],
            document["trimmed_below"],
            tuple(map(LedgerInfo.of, document["ledgers"])),
            tuple(document.get("deleting", ())),
            document.get("terminated", False),
            document.get("deleted", False),
            tuple(document.get("properties", {}).items()),
            tuple(Discarded(**one) for one in document.get("discarded", ())),
        )


def _discarded(info: LedgerInfo) -> Discarded:
    assert info.offload is not None
    return Discarded(info.offload.url, info.id, info.offload.attempt, info.offload.parts)


class Footer(NamedTuple):
    """The index of a sealed ledger. `times` has two columns: highest wall_ms so far, entry."""

    offsets: U64Array
    times: U64Array
    frames_end: int

    def stretch(self, entry: int, size: int, stop: int) -> tuple[int, int]:
        """From `entry` on, as many whole frames as fit into `size` bytes, at least one, none of entry `stop` or after it.

        Gives their bytes, and the entry after them.
        """
        start = int(self.offsets[entry])
        following = int(self.offsets.searchsorted(np.uint64(start + size), "right")) - 1
        if self.frames_end - start <= size:
            following = len(self.offsets)
        following = min(max(following, entry + 1), stop)
        end = int(self.offsets[following]) if following < len(self.offsets) else self.frames_end
        return end - start, following


def encode_footer(ledger_id: int, frames_end: int, index: FrameIndex) -> bytes:
    offsets = np.asarray(index.offsets, "<u8").tobytes()
    times = np.asarray(index.finished_times(), "<u8").tobytes()
    record = _TRAILER.pack(
        FOOTER_MAGIC,
        1,
        0,
        0,
        ledger_id,
        len(index.offsets),
        frames_end,
        len(times) // 16,
        google_crc32c.value(offsets),
        google_crc32c.value(times),
        0,
    )
    return b"".join((offsets, times, record, _U32.pack(google_crc32c.value(record))))


class FooterSource(Protocol):
    """What holds a ledger's bytes, local or not."""

    @property
    def path(self) -> Path | str: ...

    def read_at(self, offset: int, size: int) -> bytes: ...

    def size(self) -> int: ...


def read_footer(file: FooterSource, info: LedgerInfo) -> Footer:
    """The footer of a sealed ledger. It was durable before the list said so: anything else is corruption."""
    size = file.size()
    at = size - TRAILER_BYTES
    raw = file.read_at(max(at, 0), TRAILER_BYTES)
    if len(raw) < TRAILER_BYTES or google_crc32c.value(raw[:-4]) != _U32.unpack_from(raw, 60)[0]:
        raise corruption(file.path, max(at, 0), "the footer does not match its checksum")
    magic, version, _, _, ledger_id, entries, frames_end, times, index_crc, times_crc, _ = _TRAILER.unpack_from(raw)
    if version != 1:
        raise NotSupported(f"{file.path} has a footer of version {version}", hint="a newer Penstock wrote it: upgrade")
    if (magic, ledger_id, entries, frames_end) != (FOOTER_MAGIC, info.id, info.entries, info.frames_end) or (
        frames_end + 8 * entries + 16 * times != at
    ):
        raise corruption(file.path, at, "the footer does not agree with the ledger list")
    raw_index = file.read_at(frames_end, 8 * entries)
    raw_times = file.read_at(frames_end + 8 * entries, 16 * times)
    if crc32c(raw_index) != index_crc or crc32c(raw_times) != times_crc:
        raise corruption(file.path, frames_end, "the index does not match its checksum")
    return Footer(np.frombuffer(raw_index, "<u8"), np.frombuffer(raw_times, "<u8").reshape(-1, 2), frames_end)


def ledger_path(directory: Path, ledger_id: int) -> Path:
    return directory / ledger_name(ledger_id)

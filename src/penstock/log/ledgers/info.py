"""Ledgers: their names, their footer, and the list of them in the metadata store (docs/formats/ledger.md)."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.errors import NotSupported
from penstock.log.frames.index import FrameIndex

_NAME = re.compile(r"ledger-(\d{16})\.log")


def ledger_name(ledger_id: int) -> str:
    return f"ledger-{ledger_id:016d}.log"


def ledger_id_of(name: str) -> int | None:
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def ledger_path(directory: Path, ledger_id: int) -> Path:
    return directory / ledger_name(ledger_id)


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

"""The list of a log's ledgers, one document in the metadata store (docs/formats/ledger.md), and the names of their files."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from pyroaring import BitMap

from penstock.errors import NotSupported
from penstock.log.frames.index import FrameIndex
from penstock.log.position import Position

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
    """A ledger's copy in an object store, complete or being uploaded (docs/formats/offload.md)."""

    attempt: str  # 32 hex digits, fresh for each try
    url: str
    state: str  # "uploading"; "copied": the local file and the objects count; "moved": only the objects count
    part_bytes: int
    parts: int
    copied_ms: int = 0
    index_bytes: int = 0
    index_crc: int = 0


@dataclass(frozen=True, slots=True)
class Discarded:
    """A tombstone: objects of an offload attempt that does not count any more, and that are being deleted."""

    url: str
    ledger: int
    attempt: str
    parts: int


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """What the list knows of a ledger; its counts are 0 until it is sealed.

    `footer` is False where the ledger was sealed in the list alone (its file failed, or it was recovered or truncated): its
    index is made by reading its frames.
    """

    id: int
    epoch: int
    created_ms: int = 0
    state: str = "open"
    entries: int = 0
    frames_end: int = 0
    first_ms: int = 0
    last_ms: int = 0
    messages: int = 0  # that its entries stand for
    footer: bool = True
    offload: Offload | None = None
    skipped: tuple[tuple[int, int], ...] = ()  # runs of entries that cannot be read and were given up: first, last
    _text: str | None = field(default=None, init=False, repr=False, compare=False)  # kept by `text`

    def skipped_entries(self) -> BitMap:
        bitmap = BitMap()
        for first, last in self.skipped:
            bitmap.add_range(first, last + 1)
        return bitmap

    def kept_parts(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The entries `first` to `last` without those that were skipped, as (first, last) of each part."""
        for low, high in self.skipped:
            if low <= last and high >= first:
                if first < low:
                    yield first, low - 1
                first = high + 1
        if first <= last:
            yield first, last

    @property
    def sealed(self) -> bool:
        return self.state == "sealed"

    @property
    def is_local(self) -> bool:
        """Whether its local file may be read."""
        return self.offload is None or self.offload.state != "moved"

    @property
    def is_offloaded(self) -> bool:
        """Whether its objects are complete and may be read."""
        return self.offload is not None and self.offload.state != "uploading"

    def seal(self, index: FrameIndex, frames_end: int, *, footer: bool = True) -> LedgerInfo:
        return dataclasses.replace(
            self,
            state="sealed",
            entries=len(index.offsets),
            frames_end=frames_end,
            first_ms=index.first_ms,
            last_ms=index.last_ms,
            messages=index.messages,
            footer=footer,
        )

    def document(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "_text"}
        if self.footer:
            del fields["footer"]
        if self.messages == self.entries:
            del fields["messages"]
        if not self.skipped:
            del fields["skipped"]
        if self.offload is None:
            del fields["offload"]
        else:
            fields["offload"] = dataclasses.asdict(self.offload)
        return fields

    def text(self) -> str:
        """The document as JSON. Made once: a log of ten thousand ledgers writes all of them again at each roll."""
        if self._text is None:
            object.__setattr__(self, "_text", json.dumps(self.document(), separators=(",", ":")))
        return cast(str, self._text)

    @classmethod
    def of(cls, document: dict[str, Any]) -> LedgerInfo:
        offload = document.get("offload")
        if offload or "skipped" in document:
            document = {
                **document,
                "offload": Offload(**offload) if offload else None,
                "skipped": tuple((first, last) for first, last in document.get("skipped", ())),
            }
        if "messages" not in document:
            document = {**document, "messages": document.get("entries", 0)}
        return cls(**document)


@dataclass(frozen=True, slots=True)
class LedgerList:
    """The log's document in the metadata store: its ledgers in order, and what else the owner must agree on."""

    uuid: UUID
    epoch: int
    next_ledger: int
    trimmed_below: int
    ledgers: tuple[LedgerInfo, ...]
    deleting: tuple[int, ...] = ()  # tombstones: ledgers out of the list whose files are being removed
    terminated: bool = False  # nothing may be appended, ever again
    deleted: bool = False  # the log itself is being removed
    properties: tuple[tuple[str, str], ...] = ()
    discarded: tuple[Discarded, ...] = ()
    truncations: int = 0  # how often entries were taken from the end; slots say it too, so that readers learn of it
    trimmed_entries: int = 0  # how many the last trimmed ledger had, number `trimmed_below - 1`; 0: that is not known

    @property
    def trimmed_to(self) -> Position | None:
        """The last entry that was trimmed; None where nothing was, or where the list does not say."""
        return Position(self.trimmed_below - 1, self.trimmed_entries - 1) if self.trimmed_entries else None

    def without(self, going: Collection[int]) -> LedgerList:
        """The list without the ledgers `going`, with tombstones for their files and for their objects."""
        objects = tuple(_discarded(info) for info in self.ledgers if info.id in going and info.offload is not None)
        return dataclasses.replace(
            self,
            ledgers=tuple(info for info in self.ledgers if info.id not in going),
            deleting=(*self.deleting, *going),
            discarded=(*self.discarded, *objects),
        )

    def trimmed(self, going: Sequence[int]) -> LedgerList:
        """The list without its ledgers up to `going[-1]`, which were trimmed."""
        last = next(info for info in self.ledgers if info.id == going[-1])
        return dataclasses.replace(self.without(going), trimmed_below=last.id + 1, trimmed_entries=last.entries)

    def with_offload(self, ledger_id: int, offload: Offload | None) -> LedgerList:
        """The list with another `offload` for this ledger. The objects of a former attempt are discarded."""
        old = next(info for info in self.ledgers if info.id == ledger_id)
        same = old.offload is None or (offload is not None and offload.attempt == old.offload.attempt)
        return dataclasses.replace(
            self,
            ledgers=tuple(dataclasses.replace(info, offload=offload) if info is old else info for info in self.ledgers),
            discarded=self.discarded if same else (*self.discarded, _discarded(old)),
        )

    def without_uploads(self) -> LedgerList:
        """The list as a new owner takes it over: uploads that the last owner had not finished are discarded."""
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
        }
        if self.deleting:
            document["deleting"] = list(self.deleting)
        if self.discarded:
            document["discarded"] = [dataclasses.asdict(one) for one in self.discarded]
        if self.properties:
            document["properties"] = dict(self.properties)
        if self.truncations:
            document["truncations"] = self.truncations
        if self.trimmed_entries:
            document["trimmed_entries"] = self.trimmed_entries
        for flag in ("terminated", "deleted"):
            if getattr(self, flag):
                document[flag] = True
        ledgers = ",".join([ledger.text() for ledger in self.ledgers])
        return f'{json.dumps(document, separators=(",", ":"))[:-1]},"ledgers":[{ledgers}]}}'.encode()

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
            document.get("truncations", 0),
            document.get("trimmed_entries", 0),
        )


def _discarded(info: LedgerInfo) -> Discarded:
    assert info.offload is not None
    return Discarded(info.offload.url, info.id, info.offload.attempt, info.offload.parts)

"""The format of offloaded ledgers (docs/formats/offload.md): names of the objects, and the index object."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import google_crc32c
import numpy as np

from penstock.errors import Corruption, NotSupported
from penstock.log.frames.format import crc32c

INDEX_MAGIC = b"PSO1"
BLOCK_BYTES = 128 << 10
_HEADER = struct.Struct("<4sBBH16s16sQQQQQII16x")
_U32 = struct.Struct("<I")


class OffloadIndex(NamedTuple):
    """The contents of the index object: a checksum for each block, and the ledger's footer (docs/formats/ledger.md)."""

    log: UUID
    attempt: str
    ledger_id: int
    entries: int
    frames_end: int
    part_bytes: int
    block_bytes: int
    checksums: Sequence[int]
    footer: bytes

    def encode(self) -> bytes:
        header = _HEADER.pack(
            INDEX_MAGIC, 1, 0, 0, self.log.bytes, bytes.fromhex(self.attempt), self.ledger_id, self.entries,
            self.frames_end, self.part_bytes, len(self.footer), self.block_bytes, len(self.checksums),
        )  # fmt: skip
        body = b"".join((header, np.asarray(self.checksums, "<u4").tobytes(), self.footer))
        return body + _U32.pack(google_crc32c.value(body))

    @classmethod
    def decode(cls, raw: bytes, where: str) -> OffloadIndex:
        """Raises `Corruption` where the bytes are not a whole index; `where` names the object in the error."""
        if len(raw) < _HEADER.size + 4 or crc32c(raw[:-4]) != _U32.unpack_from(raw, len(raw) - 4)[0]:
            raise damaged(where, 0, "the index does not match its checksum")
        (magic, version, _, _, log, attempt, ledger_id, entries, frames_end, part_bytes, footer_bytes, block_bytes,
         blocks) = _HEADER.unpack_from(raw)  # fmt: skip
        if magic != INDEX_MAGIC:
            raise damaged(where, 0, "the object is of another kind")
        if version != 1:
            raise NotSupported(f"{where} has version {version}", hint="a newer Penstock wrote it: upgrade")
        at = _HEADER.size + 4 * blocks
        if at + footer_bytes + 4 != len(raw) or blocks != -(-frames_end // block_bytes) or part_bytes % block_bytes:
            raise damaged(where, 0, "its lengths do not agree")
        return cls(
            UUID(bytes=log),
            attempt.hex(),
            ledger_id,
            entries,
            frames_end,
            part_bytes,
            block_bytes,
            np.frombuffer(raw, "<u4", blocks, _HEADER.size),  # type: ignore[arg-type]
            raw[at : at + footer_bytes],
        )


def checksum_of(raw: bytes) -> int:
    """The CRC at the end of an encoded index, for the ledger list. (A CRC over its own CRC would be the same for any index.)"""
    return int(_U32.unpack(raw[-4:])[0])


def index_name(log: UUID, ledger_id: int, attempt: str) -> str:
    return f"{log}/{ledger_id:016d}-{attempt}.index"


def part_name(log: UUID, ledger_id: int, attempt: str, part: int) -> str:
    return f"{log}/{ledger_id:016d}-{attempt}-{part:08d}.part"


def object_names(log: UUID, ledger_id: int, attempt: str, parts: int) -> list[str]:
    """All objects of an attempt, in the order of their deletion: the index first, so that it never outlives its parts."""
    return [index_name(log, ledger_id, attempt), *(part_name(log, ledger_id, attempt, n) for n in range(parts))]


def damaged(where: str, offset: int, what: str) -> Corruption:
    """The error for objects that are not what was put. `check.damage` takes the sentence apart again."""
    return Corruption(
        f"{where} is damaged at byte {offset}: {what}",
        hint="nothing was changed; restore this object from a version or copy of the store, then read again",
    )

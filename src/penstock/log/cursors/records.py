"""The records of a cursor: how they are written, and the state they amount to (docs/formats/record-log.md)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from pyroaring import BitMap

from penstock.errors import Corruption, NotSupported
from penstock.log.cursors.acked import POSITION, Acked, decode_bitmaps, encode_bitmaps
from penstock.log.position import Position
from penstock.log.read.positions import LedgerViews
from penstock.log.records.record_log import Record

_ACKS, _RESET, _SNAPSHOT, _DETAILS = range(4, 8)
_U32 = struct.Struct("<I")
NOWHERE = Position(0, -1)


class ForeignCursor(Corruption):
    """The records are whole, but do not fit this log: it is another one, or it lost entries."""


@dataclass(slots=True)
class CursorState:
    """Everything that a cursor keeps. Not thread-safe: the holder locks."""

    acked: Acked
    properties: dict[str, str] = field(default_factory=dict)
    position_properties: dict[str, str] = field(default_factory=dict)  # of the last mark-delete that had any
    active_ms: int = 0
    fresh: bool = False  # made and not registered yet
    records: int = 0  # the number of the last record, as of the replay
    set_back_from: Position | None = None  # the mark-delete of the records, where a truncation removed that entry

    def reset(self, position: Position) -> None:
        self.acked = Acked(position)


def encode_snapshot(state: CursorState, log: UUID) -> bytes:
    acked = state.acked
    parts = (bytes([_SNAPSHOT]), log.bytes, POSITION.pack(*acked.mark_delete), encode_bitmaps(acked.ledgers))
    return b"".join((*parts, _details(state)))


def encode_acks(mark_delete: Position, bitmaps: Mapping[int, BitMap], details: CursorState | None = None) -> bytes:
    parts = (bytes([_ACKS]), POSITION.pack(*mark_delete), encode_bitmaps(bitmaps))
    return b"".join((*parts, _details(details) if details is not None else b""))


def encode_reset(position: Position) -> bytes:
    return bytes([_RESET]) + POSITION.pack(*position)


def encode_details(state: CursorState) -> bytes:
    return bytes([_DETAILS]) + _details(state)


def _details(state: CursorState) -> bytes:
    document = {
        "properties": state.properties,
        "position_properties": state.position_properties,
        "active_ms": state.active_ms,
        **({"fresh": True} if state.fresh else {}),
    }
    raw = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return _U32.pack(len(raw)) + raw


def _read_details(raw: bytes, at: int, state: CursorState) -> None:
    (size,) = _U32.unpack_from(raw, at)
    document = json.loads(raw[at + _U32.size : at + _U32.size + size])
    state.properties = document["properties"]
    state.position_properties = document["position_properties"]
    state.active_ms = max(state.active_ms, document["active_ms"])
    state.fresh = document.get("fresh", False)


def replay(records: Iterable[Record], log: UUID, views: LedgerViews) -> CursorState | None:
    """The state that the records amount to; None without records. Raises `Corruption` for a cursor of another log.

    Acks of entries that the log does not have count for nothing where it was truncated: the cursor is set back to the
    last entry before them. A log that never was truncated has lost such entries: `Corruption`.
    """
    state: CursorState | None = None
    number = 0
    for number, data, _, wall_ms in records:
        kind = data[0]
        if kind == _SNAPSHOT:
            state = _read_snapshot(data, log)
        elif state is None:
            raise Corruption(f"record {number} of a cursor comes before any snapshot")
        elif kind == _DETAILS:
            _read_details(data, 1, state)
        else:
            state.active_ms = max(state.active_ms, wall_ms)
            state.fresh = False
            _apply(state, kind, data)
    if state is not None:
        state.records = number
        if views.truncations:
            before = state.acked.mark_delete
            state.acked.follow_truncation(views)
            if state.acked.mark_delete < before:
                state.set_back_from = before
        state.acked.follow_skips(views)
        state.acked.advance(views)
        _refuse_beyond(state.acked.mark_delete, views)
        state.acked.follow_trim(views)
    return state


def maker_of_unused(records: Iterable[Record]) -> UUID | None:
    """The log whose cursor was made and never used, which is all that the records say: it may have been registered, or a
    crash came before that. None for other records."""
    maker: UUID | None = None
    for _, data, _, _ in records:
        maker = UUID(bytes=data[1:17]) if data[0] == _SNAPSHOT and _decode_snapshot(data).fresh else None
        if maker is None:
            break
    return maker


def _read_snapshot(data: bytes, log: UUID) -> CursorState:
    uuid = UUID(bytes=data[1:17])
    if uuid != log:
        raise ForeignCursor(
            f"the cursor belongs to log {uuid}, not to {log}",
            hint="nothing was changed; the log or the cursors come from another state directory",
        )
    return _decode_snapshot(data)


def _decode_snapshot(data: bytes) -> CursorState:
    bitmaps, at = decode_bitmaps(data, 33)
    state = CursorState(Acked(Position(*POSITION.unpack_from(data, 17)), bitmaps))
    _read_details(data, at, state)
    return state


def _apply(state: CursorState, kind: int, data: bytes) -> None:
    if kind not in (_ACKS, _RESET):
        raise NotSupported(f"cursor record of kind {kind} is not known", hint="a newer Penstock wrote it: upgrade")
    position = Position(*POSITION.unpack_from(data, 1))
    if kind == _RESET:
        state.reset(position)
    else:
        bitmaps, at = decode_bitmaps(data, 17)
        state.acked.move_to(position)
        state.acked.add(bitmaps)
        if at < len(data):
            _read_details(data, at, state)


def _refuse_beyond(mark_delete: Position, views: LedgerViews) -> None:
    """Raises `ForeignCursor` where the log does not have the entry: then the log lost entries. Only sealed ledgers count.
    The end of an open ledger may be old after a power cut, until the log's owner has recovered it."""
    view = views.find(mark_delete.ledger_id)
    newest = views[-1].info.id if views else 0
    if (view is None and mark_delete.ledger_id > newest and mark_delete.entry_id >= 0) or (
        view is not None and view.info.sealed and mark_delete.entry_id >= view.entries
    ):
        raise ForeignCursor(
            f"the cursor is at {mark_delete}, which the log does not have",
            hint="nothing was changed; the log was restored from an older copy than its cursors",
        )

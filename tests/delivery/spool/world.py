"""Items and spools for the tests of the spool: bodies that say what they are, disks in memory, no thread."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.clock import Clock, ManualClock
from penstock.delivery.payload import dispatcher_id
from penstock.delivery.spool import DataItem, Disk, DrainMarkerItem, Spool, SpoolItem, SpoolLimits
from penstock.delivery.spool.items import ITEM_BYTES
from penstock.files import Files
from penstock.files.memory import MemoryFiles

A, B, C = (dispatcher_id("f", "s", table) for table in ("a", "b", "c"))
DIRECTORY = Path("/spool/raw")
INCARNATION = "0123456789abcdef" * 2
MANY = 1 << 40


def body_of(dispatcher: str, number: int, size: int) -> bytes:
    """Bytes that differ for each item, so that reading a wrong one is seen."""
    seed = hashlib.sha256(f"{dispatcher} {number}".encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def data(
    number: int,
    *,
    dispatcher: str = A,
    size: int = 100,
    at: float | None = None,
    post_flush: Callable[[], None] | None = None,
    **more: Any,
) -> DataItem[int]:
    """Item number n has commit_ts n and came at n, unless said otherwise."""
    return DataItem(
        dispatcher,
        number,
        body_of(dispatcher, number, size),
        number,
        number,
        float(number) if at is None else at,
        (post_flush,) if post_flush is not None else (),
        **more,
    )


def held(size: int = 100) -> int:
    """What an item of this size counts."""
    return size + ITEM_BYTES


def limits(**changes: int) -> SpoolLimits:
    """Wide open but for what is named."""
    wide = {"high_bytes": MANY, "low_bytes": MANY, "memory_high_bytes": MANY, "memory_low_bytes": MANY}
    return SpoolLimits(**{**wide, "quota_bytes": MANY, **changes})


def spool_on(
    files: Files | None = None, clock: Clock | None = None, *, background: bool = False, **changes: int
) -> Spool:
    """A spool over a disk, with spilling by `step` only."""
    read_back = changes.pop("read_back_bytes", MANY)
    return Spool(
        limits(**changes),
        disk=Disk(DIRECTORY, INCARNATION, files if files is not None else MemoryFiles()),
        clock=clock if clock is not None else ManualClock(),
        read_back_bytes=read_back,
        background=background,
        name="raw",
    )


def alarm_of(spool: Spool) -> str:
    """Empty while the disk works. A function, because a type checker believes that a property stays as it was."""
    return spool.alarm or ""


def settle(spool: Spool) -> None:
    """All background work that can be done now."""
    while spool.step():
        pass


def pop_all(spool: Spool, dispatcher: str) -> list[SpoolItem]:
    found: list[SpoolItem] = []
    while popped := spool.pop(dispatcher):
        found += popped
    return found


def numbers(items: list[SpoolItem]) -> list[int]:
    return [item.payload for item in items if isinstance(item, DataItem)]


def marker(dispatcher: str = A, ts: int | None = None, ack: Callable[[Any], None] | None = None) -> DrainMarkerItem:
    return DrainMarkerItem(dispatcher, ack, ts)

"""The payloads of a batch, as a sink reads them from the spool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.delivery.spool.items import DataItem
from penstock.delivery.spool.spool import Spool
from penstock.files import Buffer


class SpooledBodies:
    """One at a time is in memory. What the sink itself holds of them is counted by the spool too."""

    def __init__(self, spool: Spool, items: Sequence[DataItem[Any]]) -> None:
        self._spool = spool
        self._items = items

    def __iter__(self) -> Iterator[Buffer]:
        return self._spool.bodies(self._items)

    def hold(self, size: int) -> None:
        self._spool.count_assembled(size)

"""One shard: the queues of its dispatchers, which of them are active, and its items by age.

Everything here is under `lock`, which is never held during I/O or a callback.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from penstock.delivery.spool.items import DataItem, Place, SpoolItem
from penstock.errors import PenstockError

_AGED_SPARE = 64  # entries of `_aged` that may be out of date before it is looked through


class Shard:
    """`held` has the bytes of each dispatcher that holds any, staged and popped ones included; `failed` why a dispatcher
    takes nothing more."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.lock = threading.Lock()
        self.queues: dict[str, deque[SpoolItem]] = {}  # never holds an empty queue
        self.held: dict[str, int] = {}
        self.failed: dict[str, PenstockError] = {}
        self.stale_skipped = 0
        self._active: deque[str] = deque()
        self._in_active: set[str] = set()
        self._aged: deque[DataItem[Any]] = deque()  # in the order in which they came; may hold some that left memory
        self._spillable = 0  # items of `_aged` that are still in memory

    # ---- queues and the active set

    @property
    def has_active(self) -> bool:
        return bool(self._active)

    def append(self, dispatcher: str, items: list[SpoolItem]) -> None:
        queue = self.queues.get(dispatcher)
        if queue is None:
            queue = self.queues[dispatcher] = deque()
        queue.extend(items)
        self.activate(dispatcher)

    def activate(self, dispatcher: str) -> bool:
        if dispatcher not in self.queues:
            return False
        if dispatcher not in self._in_active:
            self._in_active.add(dispatcher)
            self._active.append(dispatcher)
        return True

    def pick(self) -> str | None:
        """The next active dispatcher. One whose queue was emptied meanwhile is passed over."""
        while self._active:
            dispatcher = self._active.popleft()
            self._in_active.discard(dispatcher)
            if dispatcher in self.queues:
                return dispatcher
            self.stale_skipped += 1
        return None

    def pop(self, dispatcher: str, items_max: int, bytes_max: int) -> list[SpoolItem]:
        queue = self.queues.get(dispatcher)
        if queue is None:
            return []
        popped: list[SpoolItem] = []
        size = 0
        while queue and len(popped) < items_max:
            head = queue[0]
            size += head.size if isinstance(head, DataItem) else 0
            if popped and size > bytes_max:
                break
            popped.append(queue.popleft())
        if not queue:
            del self.queues[dispatcher]
        return popped

    def take_queue(self, dispatcher: str) -> list[SpoolItem]:
        return list(self.queues.pop(dispatcher, ()))

    def take_all(self) -> list[SpoolItem]:
        items = [item for queue in self.queues.values() for item in queue]
        self.queues.clear()
        self._active.clear()
        self._in_active.clear()
        return items

    # ---- bytes by dispatcher, items by age

    def hold(self, item: DataItem[Any]) -> None:
        item.place = Place.MEMORY
        self.held[item.dispatcher] = self.held.get(item.dispatcher, 0) + item.size + item.overhead
        if not item.pinned and item.size:
            self._aged.append(item)
            self._spillable += 1

    def let_go(self, item: DataItem[Any]) -> None:
        """Takes the item out of the account of its dispatcher; the caller has changed or will change its place."""
        left = self.held[item.dispatcher] - item.size - item.overhead
        if left:
            self.held[item.dispatcher] = left
        else:
            del self.held[item.dispatcher]
        if item.place is Place.MEMORY and not item.pinned and item.size:
            self._not_spillable(item)

    @property
    def can_spill(self) -> bool:
        return self._spillable > 0

    def oldest(self) -> float | None:
        """When the oldest item that can be spilled came; None where there is none."""
        while self._aged and self._aged[0].place is not Place.MEMORY:
            self._aged.popleft()
        return self._aged[0].enqueued_at if self._aged else None

    def take_oldest(self, items_max: int, bytes_max: int) -> list[DataItem[Any]]:
        """The oldest items that can be spilled, as SPILLING. At least one if there is any."""
        taken: list[DataItem[Any]] = []
        size = 0
        while self._aged and len(taken) < items_max:
            item = self._aged[0]
            if item.place is not Place.MEMORY:
                self._aged.popleft()
                continue
            size += item.size
            if taken and size > bytes_max:
                break
            self._aged.popleft()
            self._spillable -= 1
            item.place = Place.SPILLING
            taken.append(item)
        return taken

    def put_back(self, items: list[DataItem[Any]]) -> None:
        """After a failed write: what nobody released meanwhile is the oldest again."""
        for item in reversed(items):
            if item.place is Place.SPILLING:
                item.place = Place.MEMORY
                if item.pinned:
                    continue
                self._aged.appendleft(item)
                self._spillable += 1

    def _not_spillable(self, item: DataItem[Any]) -> None:
        self._spillable -= 1
        if len(self._aged) > _AGED_SPARE + 2 * self._spillable:  # amortised: half of them are out of date
            item.place = Place.GONE
            self._aged = deque(each for each in self._aged if each.place is Place.MEMORY)

"""Which row of the shop is written when. Everything is a closed form of (seed, size): no history is replayed.

The stream is a series of chunks, one binlog file each; a chunk has a first and a second half. Row ids grow by chunk:

| rows | first half of chunk c | second half of c | second half of c + 1 | second half of c + 2 |
|---|---|---|---|---|
| products | insert, chunk 0 only | update where (id + c) % 8 = 0 | … each chunk | |
| customers of c | insert | | update where id % 8 = 1 | delete where id % 32 = 7 |
| orders of c | insert | update where `paid_early` | update | delete where id % 16 = 5 |
| items of those orders | insert | | | delete with their order |

A row's *stage* counts its writes: 0 when inserted, then one more with each update. `ALTER TABLE shop.orders ADD COLUMN
note` stands between the halves of the chunk in the middle. A row's content is a function of (seed, table, id, stage):
shop.py.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ORDERS_PER_CHUNK_MAX = 4096
_CHANGES_PER_ORDER = 5.5
_CHUNKS_MIN = 16  # a small shop has smaller chunks instead of fewer, so that every stage happens


@dataclass(frozen=True, slots=True)
class Plan:
    """The shop of one seed, of about `changes` row changes."""

    seed: int
    changes: int

    @property
    def orders_per_chunk(self) -> int:
        fit = int(self.changes / (_CHANGES_PER_ORDER * _CHUNKS_MIN))
        return min(_ORDERS_PER_CHUNK_MAX, max(8, fit // 4 * 4))

    @property
    def customers_per_chunk(self) -> int:
        return self.orders_per_chunk // 4

    @property
    def products(self) -> int:
        return min(256, self.orders_per_chunk)

    @property
    def chunks(self) -> int:
        return max(1, -(-self.changes // int(_CHANGES_PER_ORDER * self.orders_per_chunk)))

    @property
    def alter_chunk(self) -> int:
        """The ALTER stands between the halves of this chunk."""
        return (self.chunks - 1) // 2

    def orders(self, chunk: int) -> Ids:
        """Ids of the orders inserted in a chunk; none for a negative chunk."""
        return _block(chunk, self.orders_per_chunk)

    def customers(self, chunk: int) -> Ids:
        return _block(chunk, self.customers_per_chunk)

    def product_ids(self) -> Ids:
        return np.arange(1, self.products + 1, dtype=np.int64)

    def order_chunk(self, ids: Ids) -> Ids:
        return (ids - 1) // self.orders_per_chunk

    def customer_chunk(self, ids: Ids) -> Ids:
        return (ids - 1) // self.customers_per_chunk

    def paid_early(self, ids: Ids) -> Mask:
        """Orders with an update in their own chunk."""
        return _mask(self.random("orders.paid", ids) % np.uint64(2) == 0)

    def order_deleted(self, ids: Ids) -> Mask:
        return _mask(ids % 16 == 5)

    def customer_updated(self, ids: Ids) -> Mask:
        return _mask(ids % 8 == 1)

    def customer_deleted(self, ids: Ids) -> Mask:
        return _mask(ids % 32 == 7)

    def product_updated(self, ids: Ids, chunk: int) -> Mask:
        return _mask((ids + chunk) % 8 == 0)

    def product_stage(self, ids: Ids, chunk: int) -> Ids:
        """How often a product was updated in chunks 0 to `chunk`: the multiples of 8 in [id, id + chunk]."""
        return (ids + chunk) // 8 - (ids - 1) // 8

    def items(self, ids: Ids) -> Ids:
        """How many lines an order has."""
        return 1 + (self.random("orders.items", ids) % np.uint64(4)).astype(np.int64)

    def noted(self, ids: Ids, stage: Ids) -> Mask:
        """Whether the write that made this stage of an order came after the ALTER, so that it could set a note."""
        half_second = stage > 0
        chunk = self.order_chunk(ids) + (stage == 2)
        return _mask((chunk > self.alter_chunk) | ((chunk == self.alter_chunk) & half_second))

    def random(self, salt: str, ids: Ids, stage: Ids | int = 0) -> npt.NDArray[np.uint64]:
        """64 random bits for a row, a stage and a purpose (splitmix64)."""
        key = int.from_bytes(hashlib.blake2b(f"{self.seed} {salt}".encode(), digest_size=8).digest(), "little")
        x = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x ^= np.asarray(stage, np.int64).astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        x += np.uint64(key)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
        return result


def _mask(value: npt.ArrayLike) -> Mask:
    return np.asarray(value, np.bool_)


def _block(chunk: int, size: int) -> Ids:
    if chunk < 0:
        return np.empty(0, np.int64)
    return np.arange(chunk * size + 1, (chunk + 1) * size + 1, dtype=np.int64)

"""A chunk of the plan as one binlog file, byte for byte as MariaDB would write it, with checksums.

`chunk_file(plan, k)` is a pure function: a restart at any position of file k + 1 makes exactly the same bytes again,
without the files before it. Each chunk has a reserved range of GTIDs and uses the last ones of it: so the GTID list at
the head of a file, which names the last GTID before it, is right whatever number of transactions the files before it
hold.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.binlog.types import CHECKSUM_BYTES, HEADER_BYTES, MAGIC, EventType
from penstock.kernels.compile import kernel
from penstock.kernels.copy import copy_bytes
from penstock.sources.demo import shop
from penstock.sources.demo.byte_column import (
    ByteColumn,
    Bytes,
    Ints,
    concatenate,
    constant,
    groups,
    join,
    little_endian,
)
from penstock.sources.demo.plan import Ids, Plan
from penstock.sources.demo.rows import Values, row_images

FILE_PREFIX = "demo-bin."
SERVER_ID = 7
_TIMESTAMP = 1_704_067_200
_DDL_FLAGS2 = 0x29  # standalone, transactional engine, DDL: as MariaDB 10.11 writes them
_ROWS_FLAGS2 = 0x0C
_GTID_FLAGS = 8  # in the header of a GTID event
_QUERY_STATUS = bytes.fromhex("0000000000010100002054000000000603737464042100210008 00".replace(" ", ""))
_POST_HEADERS = (
    bytes.fromhex("380d000800120004040404120000e400041a08000000080808020000000a0a0a0000000000000a0a0a")
    + bytes(119)
    + bytes.fromhex("041304000d0808080a0a0a")
)
_FDE_BODY = (
    struct.pack("<H50sIB", 4, b"10.11.19-MariaDB-0+deb12u1-log", _TIMESTAMP, HEADER_BYTES) + _POST_HEADERS + b"\x01"
)


@dataclass(frozen=True, slots=True)
class ChunkFile:
    """One file of the stream. `ends[t]` is the offset after transaction t, `rows[t]` the row changes up to there."""

    name: str
    data: Bytes
    ends: Ints
    rows: Ints


def file_name(chunk: int) -> str:
    return f"{FILE_PREFIX}{chunk + 1:06d}"


def chunk_of(name: str) -> int:
    """The chunk of a file of the demo; -1 for any other name."""
    digits = name.removeprefix(FILE_PREFIX)
    return int(digits) - 1 if name.startswith(FILE_PREFIX) and digits.isdigit() else -1


def gtids_per_chunk(plan: Plan) -> int:
    return 4 * plan.orders_per_chunk + 1024


def chunk_file(plan: Plan, chunk: int) -> ChunkFile:
    """File `chunk + 1`: magic, format description, GTID list, the chunk's transactions, and a rotation to the next."""
    script = _Script(plan)
    _first_half(script, plan, chunk)
    script.end_half(chunk)
    if chunk == plan.alter_chunk:
        script.ddl(shop.ALTER_ORDERS)
        script.end_half(chunk)
    _second_half(script, plan, chunk)
    script.end_half(chunk)
    return script.file(chunk)


def _first_half(script: _Script, plan: Plan, chunk: int) -> None:
    orders_table = shop.ORDERS if chunk <= plan.alter_chunk else shop.ORDERS_NOTED
    if chunk == 0:
        script.ddl(shop.CREATE_DATABASE)
        for table in (shop.CUSTOMERS, shop.PRODUCTS, shop.ORDERS, shop.ORDER_ITEMS):
            script.ddl(table.create)
        script.end_half(chunk)
        products = plan.product_ids()
        script.insert(shop.PRODUCTS, products, np.zeros_like(products), batch=64)
    customers = plan.customers(chunk)
    script.insert(shop.CUSTOMERS, customers, np.zeros_like(customers), batch=8)
    orders = plan.orders(chunk)
    order_ids, lines, counts = shop.item_keys(plan, orders)
    txns = script.begin(len(orders), rows=counts + 1)
    one = np.ones(len(orders), np.int64)
    script.rows(txns, 2, orders_table, EventType.WRITE_ROWS_V1, script.images(orders_table, orders, one * 0), one)
    images = script.images(shop.ORDER_ITEMS, order_ids, lines)
    script.rows(txns, 4, shop.ORDER_ITEMS, EventType.WRITE_ROWS_V1, images, counts)
    script.commit(txns)


def _second_half(script: _Script, plan: Plan, chunk: int) -> None:
    orders_table = shop.ORDERS if chunk < plan.alter_chunk else shop.ORDERS_NOTED
    orders = plan.orders(chunk)
    early = orders[plan.paid_early(orders)]
    script.update(orders_table, early, np.zeros_like(early), np.ones_like(early), batch=1)
    orders = plan.orders(chunk - 1)
    script.update(orders_table, orders, plan.paid_early(orders).astype(np.int64), np.full_like(orders, 2), batch=64)
    products = plan.product_ids()
    products = products[plan.product_updated(products, chunk)]
    stage = plan.product_stage(products, chunk)
    script.update(shop.PRODUCTS, products, stage - 1, stage, batch=16)
    customers = plan.customers(chunk - 1)
    customers = customers[plan.customer_updated(customers)]
    script.update(shop.CUSTOMERS, customers, np.zeros_like(customers), np.ones_like(customers), batch=1)
    customers = plan.customers(chunk - 2)
    customers = customers[plan.customer_deleted(customers)]
    script.delete(shop.CUSTOMERS, customers, plan.customer_updated(customers).astype(np.int64), batch=4)
    orders = plan.orders(chunk - 2)
    _delete_orders(script, plan, orders_table, orders[plan.order_deleted(orders)])


def _delete_orders(script: _Script, plan: Plan, table: shop.Table, orders: Ids) -> None:
    if not len(orders):
        return
    order_ids, lines, counts = shop.item_keys(plan, orders)
    batches = _batches(len(orders), 16)
    items = np.add.reduceat(counts, np.cumsum(batches) - batches)
    txns = script.begin(len(batches), rows=batches + items)
    images = script.images(shop.ORDER_ITEMS, order_ids, lines)
    script.rows(txns, 2, shop.ORDER_ITEMS, EventType.DELETE_ROWS_V1, images, items)
    images = script.images(table, orders, np.full_like(orders, 2))
    script.rows(txns, 4, table, EventType.DELETE_ROWS_V1, images, batches)
    script.commit(txns)


def _batches(count: int, size: int) -> Ints:
    """The sizes of batches of `size` rows that make `count` together; the last one has what is left."""
    sizes = np.full(-(-count // size), size, np.int64)
    if count % size:
        sizes[-1] = count % size
    return sizes


class _Script:
    """Collects the events of a chunk, then writes them in the order of their transactions and ranks.

    The transactions of a half are shuffled, because those of real clients come in any order.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._half_start = 0
        self._next = 0
        self._place: list[Ints] = []  # for each half: the place of each of its transactions in the file
        self._row_counts: list[Ints] = []
        self._flags2: list[Ints] = []
        self._txn: list[Ints] = []
        self._rank: list[Ints] = []
        self._type: list[npt.NDArray[np.uint8]] = []
        self._bodies: list[ByteColumn] = []

    def images(self, table: shop.Table, ids: Ids, stage: Ids) -> ByteColumn:
        columns: list[Values] = table.content(self._plan, ids, stage)
        return row_images(table.forms, columns)

    def insert(self, table: shop.Table, ids: Ids, stage: Ids, *, batch: int) -> None:
        self._plain(table, EventType.WRITE_ROWS_V1, self.images(table, ids, stage), batch)

    def update(self, table: shop.Table, ids: Ids, before: Ids, after: Ids, *, batch: int) -> None:
        if len(ids):
            images = join([self.images(table, ids, before), self.images(table, ids, after)])
            self._plain(table, EventType.UPDATE_ROWS_V1, images, batch)

    def delete(self, table: shop.Table, ids: Ids, stage: Ids, *, batch: int) -> None:
        if len(ids):
            self._plain(table, EventType.DELETE_ROWS_V1, self.images(table, ids, stage), batch)

    def _plain(self, table: shop.Table, kind: EventType, images: ByteColumn, batch: int) -> None:
        counts = _batches(len(images), batch)
        txns = self.begin(len(counts), rows=counts)
        if batch > 1:  # MariaDB logs the statement with the rows; capture leaves such events out
            self._add(
                txns, 1, EventType.ANNOTATE_ROWS, constant(f"/* demo */ {kind.name} {table.name}".encode(), len(txns))
            )
        self.rows(txns, 2, table, kind, images, counts)
        self.commit(txns)

    def begin(self, count: int, *, rows: Ints, flags2: int = _ROWS_FLAGS2) -> Ints:
        """Starts `count` transactions. Returns their numbers in the chunk, before shuffling."""
        txns = np.arange(self._next, self._next + count, dtype=np.int64)
        self._next += count
        self._row_counts.append(rows)
        self._flags2.append(np.full(count, flags2, np.int64))
        return txns

    def rows(  # noqa: PLR0917
        self, txns: Ints, rank: int, table: shop.Table, kind: EventType, images: ByteColumn, counts: Ints
    ) -> None:
        """A TABLE_MAP and a row event in each of `txns`. Transaction i gets the next `counts[i]` of the images."""
        table_id = table.table_id.to_bytes(6, "little")
        self._add(txns, rank, EventType.TABLE_MAP, constant(table_id + table.table_map, len(txns)))
        width = len(table.columns)
        present = ((1 << width) - 1).to_bytes(-(-width // 8), "little")
        head = table_id + b"\x01\x00" + bytes([width]) + present * (2 if kind == EventType.UPDATE_ROWS_V1 else 1)
        self._add(txns, rank + 1, kind, join([constant(head, len(txns)), groups(images, counts)]))

    def commit(self, txns: Ints) -> None:
        self._add(txns, 99, EventType.XID, little_endian(txns + 1, 8))

    def ddl(self, sql: str) -> None:
        txns = self.begin(1, rows=np.zeros(1, np.int64), flags2=_DDL_FLAGS2)
        schema = shop.SCHEMA.encode()
        body = (
            struct.pack("<IIBHH", 5, 0, len(schema), 0, len(_QUERY_STATUS))
            + _QUERY_STATUS
            + schema
            + b"\0"
            + sql.encode()
        )
        self._add(txns, 1, EventType.QUERY, constant(body, 1))
        self.end_half(-1)

    def end_half(self, chunk: int) -> None:
        """Shuffles the transactions since the last call among themselves. A DDL is alone, so it keeps its place."""
        local = np.arange(self._half_start, self._next, dtype=np.int64)
        place = np.empty_like(local)
        keys = self._plan.random("shuffle", local, chunk + 1)
        place[np.argsort(keys, kind="stable")] = local
        self._place.append(place)
        self._half_start = self._next

    def _add(self, txns: Ints, rank: int, kind: EventType, bodies: ByteColumn) -> None:
        self._txn.append(txns)
        self._rank.append(np.full(len(txns), rank, np.int64))
        self._type.append(np.full(len(txns), kind, np.uint8))
        self._bodies.append(bodies)

    def file(self, chunk: int) -> ChunkFile:
        place = np.concatenate(self._place)
        by_place = np.argsort(place)
        count = len(place)
        sequence = (chunk + 1) * gtids_per_chunk(self._plan) - count + 1 + place
        gtid = join(
            [
                little_endian(sequence, 8),
                constant(bytes(4), count),
                little_endian(np.concatenate(self._flags2), 1),
                constant(bytes(6), count),
            ]
        )
        self._add(np.arange(count, dtype=np.int64), 0, EventType.MARIADB_GTID, gtid)
        bodies = concatenate(self._bodies)
        kinds = np.concatenate(self._type)
        order = np.argsort(place[np.concatenate(self._txn)] * 128 + np.concatenate(self._rank), kind="stable")
        timestamp = _TIMESTAMP + chunk * 60
        head = self._head(chunk, timestamp)
        out = np.empty(
            len(head) + int(bodies.length.sum()) + (HEADER_BYTES + CHECKSUM_BYTES) * len(order) + 64, np.uint8
        )
        out[: len(head)] = np.frombuffer(head, np.uint8)
        ends = np.empty(count, np.int64)
        at = _write_events(
            out, len(head), order, kinds, bodies.data, bodies.start, bodies.length, timestamp, SERVER_ID, _CRC, ends
        )
        tail = b""
        if chunk + 1 < self._plan.chunks:
            tail = _event(EventType.ROTATE, struct.pack("<Q", 4) + file_name(chunk + 1).encode(), timestamp, at)
        out[at : at + len(tail)] = np.frombuffer(tail, np.uint8)
        rows = np.cumsum(np.concatenate(self._row_counts)[by_place])
        return ChunkFile(file_name(chunk), out[: at + len(tail)], ends, rows)

    def _head(self, chunk: int, timestamp: int) -> bytes:
        head = MAGIC + _event(EventType.FORMAT_DESCRIPTION, _FDE_BODY, timestamp, 4)
        known = struct.pack("<IIIQ", 1, 0, SERVER_ID, chunk * gtids_per_chunk(self._plan)) if chunk else bytes(6)
        head += _event(EventType.MARIADB_GTID_LIST, known, timestamp, len(head))
        name = file_name(chunk).encode()
        return head + _event(EventType.BINLOG_CHECKPOINT, struct.pack("<I", len(name)) + name, timestamp, len(head))


def _event(kind: EventType, body: bytes, timestamp: int, at: int) -> bytes:
    size = HEADER_BYTES + len(body) + CHECKSUM_BYTES
    event = struct.pack("<IBIIIH", timestamp, kind, SERVER_ID, size, at + size, 0) + body
    return event + struct.pack("<I", zlib.crc32(event))


def _crc_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_CRC = _crc_table()


@kernel
def _put32(out: Bytes, at: int, value: int) -> None:
    out[at] = value & 0xFF
    out[at + 1] = (value >> 8) & 0xFF
    out[at + 2] = (value >> 16) & 0xFF
    out[at + 3] = (value >> 24) & 0xFF


@kernel
def _write_events(  # noqa: PLR0917
    out: Bytes,
    at: int,
    order: Ints,
    kinds: npt.NDArray[np.uint8],
    data: Bytes,
    start: Ints,
    length: Ints,
    timestamp: int,
    server: int,
    table: npt.NDArray[np.uint32],
    ends: Ints,
) -> int:
    """Writes header, body and CRC of each event in `order`, and the offset after each transaction to `ends`."""
    txn = -1
    for i in order:
        size = length[i] + HEADER_BYTES + CHECKSUM_BYTES
        if kinds[i] == EventType.MARIADB_GTID:
            if txn >= 0:
                ends[txn] = at
            txn += 1
        _put32(out, at, timestamp)
        out[at + 4] = kinds[i]
        _put32(out, at + 5, server)
        _put32(out, at + 9, size)
        _put32(out, at + 13, at + size)
        out[at + 17] = _GTID_FLAGS if kinds[i] == EventType.MARIADB_GTID else 0
        out[at + 18] = 0
        copy_bytes(out, at + HEADER_BYTES, data, start[i], length[i])
        crc = np.uint32(0xFFFFFFFF)
        for k in range(at, at + size - CHECKSUM_BYTES):
            crc = table[(crc ^ np.uint32(out[k])) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        _put32(out, at + size - CHECKSUM_BYTES, int(crc ^ np.uint32(0xFFFFFFFF)))
        at += size
    if txn >= 0:
        ends[txn] = at
    return at

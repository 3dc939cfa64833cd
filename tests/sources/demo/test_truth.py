"""The demo decoded out of the log equals its truth, which never saw the bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.entries.decode import decode_entries
from penstock.entries.stores import SCHEMA_HISTORY
from penstock.log import LogReader
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE, ChangeBatch
from penstock.schema.view import SchemaView
from penstock.sources.demo import shop
from penstock.sources.demo.source import DemoSource
from penstock.sources.demo.truth import truth
from penstock.state import StateReader
from tests.capture.running import capture, demo


def _schema_view(reader: LogReader) -> SchemaView:
    view = SchemaView()
    state = StateReader.open(reader, at="earliest")
    known: set[Any] = set()

    def on_frame(position: Any, data_bytes: int, changes: Any) -> None:
        for key, table in state.store(SCHEMA_HISTORY).items():
            if key not in known:
                known.add(key)
                view.add(position, table)

    state.on_frame = on_frame
    state.advance()
    return view


def test_decoded_changes_lead_to_the_truth(tmp_path: Path) -> None:
    capture(tmp_path / "log", DemoSource(demo()))
    reader = LogReader.open(tmp_path / "log")
    view = _schema_view(reader)
    batches: dict[str, list[ChangeBatch]] = {}
    for item in decode_entries(reader.read(reader.first, reader.end()), view):
        if isinstance(item, ChangeBatch):
            batches.setdefault(item.table.name, []).append(item)
    expected = truth(5, 2000)
    assert set(batches) == set(expected)
    keys = {f"shop.{t.name}": t.key for t in (shop.CUSTOMERS, shop.PRODUCTS, shop.ORDERS, shop.ORDER_ITEMS)}
    for name, parts in batches.items():
        counts = np.bincount(np.concatenate([part.op for part in parts]), minlength=128)
        table = expected[name]
        assert (counts[OP_INSERT], counts[OP_UPDATE], counts[OP_DELETE]) == (
            table.inserts,
            table.updates,
            table.deletes,
        )
        assert _final(parts, keys[name], table.rows.column_names).equals(table.rows), name


def _final(parts: list[ChangeBatch], key: tuple[str, ...], columns: list[str]) -> pa.Table:
    """The last after-image of each key that was not deleted, sorted by key."""
    tables = []
    for part in parts:
        names = [column.name for column in part.table.columns]
        deleted = part.op == OP_DELETE
        # Of a deleted row only the key counts; it is in the before image.
        images = [
            pc.if_else(pa.array(deleted), before, after) for before, after in zip(part.before, part.after, strict=True)
        ]
        table = pa.table(images, names=names)
        for missing in [c for c in columns if c not in names]:
            table = table.append_column(missing, pa.nulls(len(table), pa.string()))
        tables.append(table.append_column("_deleted", pa.array(deleted)))
    whole = pa.concat_tables(tables)
    whole = whole.append_column("_at", pa.array(np.arange(len(whole))))
    last = whole.group_by(list(key)).aggregate([("_at", "max")])["_at_max"]
    kept = whole.take(last)
    kept = kept.filter(pc.invert(kept["_deleted"])).sort_by([(k, "ascending") for k in key])
    return kept.select(columns).combine_chunks()

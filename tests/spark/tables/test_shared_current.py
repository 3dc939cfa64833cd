"""A table as it is now, made by several tasks: the same rows, and each file is read whole by one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.objects.directory import DirectoryObjects
from penstock.spark.tables.current import CurrentTable
from penstock.spark.tables.options import Options
from penstock.spark.tables.reading import batches, plan, resolve
from tests.spark.tables.lake import Lake, at, orders
from tests.support.budget import scaled

FIRST, SECOND = orders(1, "a"), orders(2, "a", "b", query="ALTER TABLE shop.orders ADD COLUMN b varchar(20)")


def current(root: Path, partitions: int) -> tuple[list[dict[str, Any]], int]:
    """The rows, and how many tasks there were."""
    options = {"path": str(root), "table": "shop.orders", "view": "current", "partitions": str(partitions)}
    found = resolve(Options.parse(options))
    pieces = plan(found)
    rows = [row for piece in pieces for batch in batches(found, piece) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["id"])), len(pieces)


@settings(max_examples=scaled(20))
@given(
    files=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=6),
    altered=st.integers(0, 6),
    partitions=st.integers(2, 8),
)
def test_the_same_whatever_the_number_of_tasks(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[int]], altered: int, partitions: int
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    for number, ids in enumerate(files):
        lake.add(FIRST if number < altered else SECOND, "2026-11-16", *ids)
    lake.schema(FIRST)
    lake.checkpoint(at("2026-11-17"))
    expected, one = current(lake.root, 1)
    assert one == 1 and {row["id"] for row in expected} == set().union(*files)
    found, tasks = current(lake.root, partitions)
    assert found == expected
    assert tasks == min(partitions, len(files))


def test_each_file_is_read_whole_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path)
    wide = orders(1, *"abcdefghijkl")
    paths = [lake.add(wide, "2026-11-16", *range(one, one + 20_000)) for one in range(0, 30_000, 10_000)]
    lake.checkpoint(at("2026-11-17"))
    whole: Counter[str] = Counter()
    fetched: Counter[str] = Counter()
    read, get = DirectoryObjects.read, DirectoryObjects.get

    def reading(self: DirectoryObjects, name: str) -> Any:
        whole[name] += 1
        return read(self, name)

    def getting(self: DirectoryObjects, name: str, offset: int, size: int) -> bytes:
        fetched[name] += size
        return get(self, name, offset, size)

    monkeypatch.setattr(DirectoryObjects, "read", reading)
    monkeypatch.setattr(DirectoryObjects, "get", getting)
    rows, tasks = current(tmp_path, 3)
    assert tasks == 3 and [row["id"] for row in rows] == list(range(40_000))
    assert {name: count for name, count in whole.items() if name in paths} == dict.fromkeys(paths, 1)
    sizes = {path: (tmp_path / path).stat().st_size for path in paths}
    assert fetched[paths[0]] == 0  # nothing is before it
    assert 0 < fetched[paths[1]] < sizes[paths[1]] / 2  # by one other task
    assert 0 < fetched[paths[2]] < sizes[paths[2]]  # by two


def test_rows_above_the_checkpoint_replace_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add(FIRST, "2026-11-16", 1, 2)
    lake.add(SECOND, "2026-11-18", 2)
    lake.checkpoint(at("2026-11-17"))
    for partitions in (1, 2):
        assert [row["id"] for row in current(tmp_path, partitions)[0]] == [1, 2]


def changes(table: Any, ops: str, ids: Any) -> pa.Table:
    made = {"_op": np.full(len(ids), ops, "<U1"), "id": pa.array(ids, pa.int32())}
    return pa.table(made | {name.name: pa.nulls(len(ids), pa.string()) for name in table.columns[1:]})


@pytest.mark.parametrize("keyed", [True, False])
def test_rows_stand_in_the_order_of_their_changes(keyed: bool) -> None:
    """Arrow groups on all cores, and gives the groups in any order: a task that Spark ran again gave other rows at the
    same places, of which a query after it that splits by place loses some and doubles others."""
    table = FIRST
    if not keyed:
        table = replace(FIRST, columns=tuple(replace(column, primary_key=False) for column in FIRST.columns))
    ids = np.random.default_rng(7).permutation(400_000)
    half = len(ids) // 2
    for _ in range(5):
        current = CurrentTable(table)
        current.take(table, [changes(table, "I", ids[:half]), changes(table, "D", ids[:half:2])])
        current.take(table, [changes(table, "I", ids[half:])])
        found = current.rows().column("id").to_numpy()
        assert np.array_equal(found, np.concatenate([ids[1:half:2], ids[half:]]))

"""A stream over a sink's prefix, as Spark drives it: each file once, whatever is restarted, expires or comes meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.delivery.storage.expiry import EXPIRED_PATH
from penstock.errors import BadInput, Corruption, PenstockError
from penstock.objects import DirectoryObjects, open_objects
from penstock.spark.tables.options import Options
from penstock.spark.tables.reading import batches, check_batch, check_stream, file_pieces, plan, resolve
from penstock.spark.tables.sink import Directory, Sink
from penstock.spark.tables.streams import sink_stream
from penstock.spark.tables.streams.evolution import ColumnsChanged
from penstock.spark.tables.streams.sink_stream import SinkOffset, SinkStream
from tests.spark.tables.conftest import FORMATS, World
from tests.spark.tables.lake import Lake, at, orders
from tests.spark.tables.test_reading import load, resolved

DAY, NEXT, LATER = "2026-11-16", "2026-11-17", "2026-11-20"
V1 = at("2026-11-01")
V2 = at(NEXT, 5)


class Query:
    """What Spark does with a stream. `at`: the offset of a checkpoint, as text."""

    def __init__(self, path: Path | str, checkpoint: str | None = None, **options: str) -> None:
        self.resolved = resolve(Options.parse({"path": str(path), **options}))
        check_stream(self.resolved)
        self.clock = ManualClock()
        self.stream = SinkStream(self.resolved.options, self.resolved.target_table(), self.clock)
        self.at = checkpoint or self._text(self.stream.initial())
        self.planned: tuple[str, str] | None = None

    def step(self) -> list[dict[str, Any]] | None:
        """The rows of the next batch; None where there is nothing new."""
        self.clock.advance(60)
        end = self._text(self.stream.end_of_batch(self._offset(self.at)))
        if end == self.at:
            return None
        self.planned, self.at = (self.at, end), end
        return self.rows(*self.planned)

    def rows(self, start: str, end: str) -> list[dict[str, Any]]:
        found = self.stream.files(self._offset(start), self._offset(end))
        files = [(file, version.to_json()) for file, version in found]
        pieces = file_pieces(files, self.resolved.options, whole=True)
        return [row for piece in pieces for batch in batches(self.resolved, piece) for row in batch.to_pylist()]

    def run(self) -> Iterator[list[dict[str, Any]]]:
        while (rows := self.step()) is not None:
            yield rows

    @staticmethod
    def _text(offset: SinkOffset) -> str:
        return json.dumps(offset.to_json())

    @staticmethod
    def _offset(text: str) -> SinkOffset:
        return SinkOffset.from_json(json.loads(text))


def ids(batches_: Any) -> list[list[int]]:
    return [[row["id"] for row in rows] for rows in batches_]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two files of a table, and the checkpoint on their day."""
    made = Lake(tmp_path / "lake")
    made.add(orders(V1), DAY, 1, 2)
    made.add(orders(V1), DAY, 3)
    made.checkpoint(at(DAY, 9))
    return made


@pytest.mark.mariadb
@pytest.mark.parametrize("where", FORMATS)
def test_a_stream_has_what_a_batch_has(world: World, where: str) -> None:
    everything = Query(world.path(where), maxBytesPerBatch="1")
    found = list(everything.run())
    assert len(found) > 5, "a file a batch"
    expected = load(path=world.path(where)).to_pylist()
    assert sorted(map(str, (row for rows in found for row in rows))) == sorted(map(str, expected))
    for name in ("types", "sold", "keyless"):
        one = [row for rows in Query(world.path(where), table=f"shop.{name}").run() for row in rows]
        assert one == load(path=world.path(where), table=f"shop.{name}").to_pylist(), "in the order of the changes"


def test_new_files_come_once_and_a_second_query_goes_on_from_the_checkpoint(lake: Lake) -> None:
    query = Query(lake.root, table="shop.orders")
    assert ids(query.run()) == [[1, 2, 3]]
    lake.add(orders(V1), DAY, 4)
    lake.add(orders(V1), NEXT, 5)
    assert ids(query.run()) == [[4, 5]]
    lake.add(orders(V1), NEXT, 6)
    again = Query(lake.root, query.at, table="shop.orders")
    assert ids(again.run()) == [[6]]
    assert again.step() is None


def test_a_batch_that_was_planned_is_the_same_after_a_restart(lake: Lake) -> None:
    query = Query(lake.root, table="shop.orders")
    query.step()
    assert query.planned is not None
    lake.add(orders(V1), DAY, 4)
    lake.add(orders(V1), NEXT, 5)
    again = Query(lake.root, query.planned[0], table="shop.orders")
    assert [row["id"] for row in again.rows(*query.planned)] == [1, 2, 3]
    again.at = query.planned[1]
    assert ids(again.run()) == [[4, 5]]


def test_only_what_an_index_names_counts(lake: Lake) -> None:
    left = lake.add(orders(V1), DAY, 4, index=False)
    query = Query(lake.root, table="shop.orders")
    assert ids(query.run()) == [[1, 2, 3]]
    lake.index(left)
    assert ids(query.run()) == [[4]]


def test_rows_above_the_checkpoint_are_not_lost(lake: Lake) -> None:
    """A file is read once, so all of it is read then; a batch read leaves out what is above the checkpoint."""
    lake.add(orders(V1), NEXT, 4)
    query = Query(lake.root, table="shop.orders")
    assert ids(query.run()) == [[1, 2, 3, 4]]
    assert load(path=lake.root, table="shop.orders").num_rows == 3
    lake.checkpoint(at(NEXT, 9))
    assert [rows for rows in ids(query.run()) if rows] == []


def test_batches_are_bounded_in_bytes_and_in_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4, 9):
        lake.add(orders(V1), DAY, number)
    assert ids(Query(lake.root, table="shop.orders", maxBytesPerBatch="1").run()) == [
        [1, 2],
        [3],
        [4],
        [5],
        [6],
        [7],
        [8],
    ]
    size = next(lake.root.glob("shop/orders/*/*/CDC000003.parquet")).stat().st_size
    found = ids(Query(lake.root, table="shop.orders", maxBytesPerBatch=str(size * 3)).run())
    assert [one for rows in found for one in rows] == [1, 2, 3, 4, 5, 6, 7, 8] and 2 <= len(found) <= 4
    monkeypatch.setattr(sink_stream, "FILES_MAX", 3)
    assert ids(Query(lake.root, table="shop.orders").run()) == [[1, 2, 3, 4], [5, 6, 7], [8]]


def test_available_now_ends_though_files_keep_coming(lake: Lake) -> None:
    query = Query(lake.root, table="shop.orders", maxBytesPerBatch="1")
    query.stream.stop_at_end()
    found = []
    for rows in islice(query.run(), 5):
        found += [row["id"] for row in rows]
        lake.add(orders(V1), DAY, 10 + len(found))
    assert found == [1, 2, 3]
    assert len(ids(Query(lake.root, query.at, table="shop.orders").run())[0]) == 2


def test_latest_begins_after_what_is_there(lake: Lake) -> None:
    query = Query(lake.root, table="shop.orders", startingPosition="latest")
    assert query.step() is None
    lake.add(orders(V1), DAY, 4)
    assert ids(query.run()) == [[4]]


def test_all_tables_and_one_that_comes_later(lake: Lake) -> None:
    query = Query(lake.root)
    assert [len(rows) for rows in query.run()] == [3]
    lake.add(orders(V1 + 1, table="items"), NEXT, 7)
    lake.add(orders(V1), NEXT, 4)
    (rows,) = query.run()
    assert sorted((row["table"], json.loads(row["after"])["id"]) for row in rows) == [
        ("shop.items", 7),
        ("shop.orders", 4),
    ]


def test_other_columns_end_the_stream_by_name_and_a_new_one_goes_on(lake: Lake) -> None:
    query = Query(lake.root, table="shop.orders")
    lake.add(orders(V2, "note", query="ALTER TABLE orders ADD COLUMN note"), NEXT, 4)
    lake.checkpoint(at(NEXT, 9))
    assert [row["id"] for row in query.step() or []] == [1, 2, 3]
    with pytest.raises(ColumnsChanged, match=r"ADD COLUMN note.*load the DataFrame again"):
        query.step()
    again = Query(lake.root, query.at, table="shop.orders")
    assert [row["note"] for row in again.step() or []] == ["note4"]
    whole = Query(lake.root, table="shop.orders")
    assert [row["note"] for rows in whole.run() for row in rows] == [None, None, None, "note4"]


def test_a_new_version_with_the_same_columns_does_not_end_it(lake: Lake) -> None:
    query = Query(lake.root, table="shop.orders")
    query.step()
    lake.add(orders(V2), NEXT, 4)
    assert query.step() is None, "a version above the checkpoint is not there yet, as for a batch read"
    lake.checkpoint(at(NEXT, 9))
    assert [row["id"] for row in query.step() or []] == [4]


def test_files_that_expire_after_they_were_read_do_not_matter(lake: Lake) -> None:
    query = Query(lake.root, table="shop.orders")
    query.step()
    lake.checkpoint(at(LATER))
    assert [rows for rows in query.run() if rows] == [], "the day moves on without files"
    lake.expire(LATER)
    again = Query(lake.root, query.at, table="shop.orders")
    assert again.step() is None
    lake.add(orders(V1), LATER, 4)
    assert ids(again.run()) == [[4]]


def test_files_that_expire_unread_are_an_error_and_no_gap(lake: Lake) -> None:
    query = Query(lake.root, table="shop.orders")
    query.step()
    lake.add(orders(V1), NEXT, 4)
    lake.add(orders(V1), LATER, 5)
    lake.checkpoint(at(LATER))
    lake.expire(LATER)
    for one in (query, Query(lake.root, query.at, table="shop.orders")):
        with pytest.raises(BadInput, match=rf"files before {LATER} have expired.*before {DAY}.*new checkpointLocation"):
            one.step()
    assert ids(Query(lake.root, table="shop.orders").run()) == [[5]], "a new one reads what is there"


def test_a_long_backlog_is_read_day_by_day(lake: Lake) -> None:
    """So that what expires meanwhile was read first, whichever table it is of."""
    lake.add(orders(V1, table="items"), LATER, 4)
    lake.checkpoint(at(LATER))
    query = Query(lake.root, maxBytesPerBatch="1")
    query.step()
    behind = query.at
    query.step()
    lake.expire(LATER)
    rest = [row for rows in Query(lake.root, query.at).run() for row in rows]
    assert [json.loads(row["after"])["id"] for row in rest] == [4]
    with pytest.raises(BadInput, match="have expired"):
        Query(lake.root, behind).step()


def test_a_sink_that_was_made_anew_is_refused(lake: Lake) -> None:
    query = Query(lake.root, table="shop.orders")
    query.step()
    lake.own("log-2")
    with pytest.raises(BadInput, match="another log"):
        Query(lake.root, query.at, table="shop.orders").step()
    lake.own("log-2", adopted=True)  # file numbers go on after those that are there
    assert Query(lake.root, query.at, table="shop.orders").step() is None
    lake.objects.delete([name for name in lake.objects.list("shop") if "CDC" in name])
    with pytest.raises(BadInput, match=r"up to file 2.*not here any more"):
        Query(lake.root, query.at, table="shop.orders").step()


def test_a_file_that_is_missing_is_an_error_and_no_gap(lake: Lake) -> None:
    next(lake.root.glob("shop/orders/*/*/CDC000001.parquet")).unlink()
    with pytest.raises(PenstockError, match=r"CDC000001.parquet"):
        Query(lake.root, table="shop.orders").step()


def test_the_prefix_is_not_listed_all_the_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(lake.root, table="shop.orders")
    query.step()
    walks = []
    walk = DirectoryObjects.walk
    monkeypatch.setattr(DirectoryObjects, "walk", lambda self, directory="": walks.append(1) or walk(self, directory))
    start = query._offset(query.at)
    for _ in range(100):
        assert query.stream.end_of_batch(start) == start
        query.clock.advance(0.01)
    assert len(walks) <= 2


def test_what_a_stream_of_a_sink_does_not_have(lake: Lake) -> None:
    with pytest.raises(BadInput, match="cursor is for logs"):
        check_stream(resolved(path=lake.root, cursor="mine"))
    with pytest.raises(BadInput, match=r"positions.*are for logs"):
        resolved(path=lake.root, startingPosition="1:0")
    with pytest.raises(BadInput, match="startingPosition is for logs and for streams"):
        check_batch(resolved(path=lake.root, startingPosition="latest"))
    with pytest.raises(BadInput, match="not one of a sink's prefix"):
        SinkOffset.from_json({"position": "1:0"})


def test_a_batch_read_beside_a_running_flow(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that came after the names were listed, and that the index names when it is read."""
    walk = DirectoryObjects.walk

    def growing(self: DirectoryObjects, directory: str = "") -> Iterator[str]:
        yield from list(walk(self, directory))
        lake.add(orders(V1), DAY, 4)

    found = resolved(path=lake.root, table="shop.orders")
    monkeypatch.setattr(DirectoryObjects, "walk", growing)
    pieces = plan(found)
    monkeypatch.undo()
    rows = [row for piece in pieces for batch in batches(found, piece) for row in batch.to_pylist()]
    assert {1, 2, 3} <= {row["id"] for row in rows}
    next(lake.root.glob("shop/orders/*/*/CDC000002.parquet")).unlink()
    with pytest.raises(Corruption, match=r"CDC000002.parquet is missing"):
        plan(found)


def test_a_table_made_before_files_expired_is_not_read_from_those_that_are_left(lake: Lake) -> None:
    """A DataFrame may be kept for days."""
    lake.add(orders(V1), LATER, 4)
    lake.checkpoint(at(LATER, 9))
    found = resolved(path=lake.root, table="shop.orders", view="current")
    assert plan(found)
    lake.expire(LATER)
    with pytest.raises(BadInput, match=f"files before {LATER} have expired"):
        plan(found)


@pytest.mark.s3
def test_a_prefix_in_an_object_store(lake: Lake, s3_url: str) -> None:
    objects = open_objects(s3_url)

    def copy() -> None:
        for name in lake.objects.walk():
            found = lake.objects.read(name)
            assert found is not None
            objects.put(name, found.data)

    copy()
    query = Query(s3_url, table="shop.orders", maxBytesPerBatch="1")
    assert ids(query.run()) == [[1, 2], [3]]
    lake.add(orders(V1), NEXT, 4)
    copy()
    assert ids(Query(s3_url, query.at, table="shop.orders").run()) == [[4]]
    assert load(path=s3_url, table="shop.orders").num_rows == 3, "up to the checkpoint"


def test_a_table_as_it_is_now_does_not_depend_on_files_of_others(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lake.add(orders(V1 + 1, table="items"), DAY, 7)
    (lake.root / path).unlink()
    reads: list[str] = []
    read = DirectoryObjects.read
    monkeypatch.setattr(DirectoryObjects, "read", lambda self, name: reads.append(name) or read(self, name))
    found = load(path=lake.root, table="shop.orders", view="current")
    assert found.column("id").to_pylist() == [1, 2, 3]
    assert not [name for name in reads if name.startswith("shop/items/version=")]
    with pytest.raises(Corruption, match=r"items.*is missing"):
        load(path=lake.root, table="shop.items", view="current")


@pytest.fixture
def expiring(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Files expire between the documents of the sink, which a reader looks at first, and their names."""
    lake.add(orders(V1), NEXT, 4)
    lake.add(orders(V1), LATER, 5)
    lake.checkpoint(at(LATER, 9))
    listed = Sink.directories

    def directories(sink: Sink, *arguments: Any) -> list[Directory]:
        if not (lake.root / EXPIRED_PATH).exists():
            lake.expire(LATER)
        return listed(sink, *arguments)

    monkeypatch.setattr(Sink, "directories", directories)
    return lake


@pytest.mark.parametrize("view", ["changes", "current"])
def test_files_that_expire_while_they_are_listed_are_no_table(expiring: Lake, view: str) -> None:
    with pytest.raises(PenstockError, match="have expired"):
        load(path=expiring.root, table="shop.orders", view=view)
    if view == "changes":
        assert load(path=expiring.root, table="shop.orders").column("id").to_pylist() == [5]


def test_files_that_expire_while_a_stream_lists_them_are_not_passed_over(expiring: Lake) -> None:
    query = Query(expiring.root, table="shop.orders")
    with pytest.raises(BadInput, match=f"files before {LATER} have expired"):
        query.step()

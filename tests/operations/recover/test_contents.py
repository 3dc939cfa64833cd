"""Which files of a sink a recovery takes for left over, and what it makes of damaged ones: files that were made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.changefeed.recovery_point import RecoveryPoint, schemas_text
from penstock.commit_ts import commit_ts_of
from penstock.delivery.storage.expiry import EXPIRED_PATH
from penstock.delivery.storage.layout import date_of, layout_of
from penstock.delivery.storage.place import open_place
from penstock.delivery.storage.progress import schemas_path
from penstock.encode import open_format
from penstock.errors import Corruption
from penstock.files import REAL_FILES
from penstock.log.position import Position
from penstock.operations.recover.contents import Contents, read_contents
from penstock.operations.recover.points import SinkPoint
from penstock.rules.versions import RowSettings
from penstock.sources.position import SourcePosition
from tests.delivery.rig import START_MS, local_objects, table_schema
from tests.encode.test_poison import batch

TODAY = date_of(commit_ts_of(START_MS))
FORMAT = "canal-json"


def contents(root: Path, entry: int = -1) -> Contents:
    """Beyond a point after this entry of ledger 1."""
    commit_ts = commit_ts_of(START_MS)
    position = SourcePosition(source="s", file="binlog.000001", pos=4, commit_ts=commit_ts)
    place = Position(1, entry)
    point = RecoveryPoint(commit_ts, position, "log", place, place, RowSettings())
    return read_contents(local_objects(root), layout_of(FORMAT), open_format(FORMAT, {}), point)


def put(root: Path, *numbers: int, named: int, date: str = TODAY) -> list[Path]:
    """Files with the rows of entries 0 and 1, and the index."""
    layout = layout_of(FORMAT)
    directory = layout.data_directory("shop", "orders", 5, date)
    made = []
    for number in numbers:
        path = root / layout.data_path(directory, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(open_format(FORMAT, {}).encode(batch([1, 2]))))
        made.append(path)
    if named:
        index = root / layout.index_path(directory)
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_text(f"{Path(layout.data_path(directory, named)).name}\n")
    return made


def test_one_file_beyond_its_index_is_left_over(tmp_path: Path) -> None:
    *_, last = put(tmp_path, 1, 2, named=1)
    found = contents(tmp_path)
    assert found.leftovers == [str(last.relative_to(tmp_path))]
    assert [one.loaded for one in found.tables.values()] == [2]


@pytest.mark.parametrize(("numbers", "named"), [((1, 2), 0), ((1, 2, 3), 1), ((1, 3), 1)])
def test_several_say_that_the_index_is_lost(tmp_path: Path, numbers: tuple[int, ...], named: int) -> None:
    """They would be deleted, and nobody writes rows of before the point again."""
    put(tmp_path, *numbers, named=named)
    with pytest.raises(Corruption, match="it is lost, or an older one"):
        contents(tmp_path)


def test_so_does_one_with_rows_of_before_the_point(tmp_path: Path) -> None:
    put(tmp_path, 1, named=0)
    assert len(contents(tmp_path).leftovers) == 1
    with pytest.raises(Corruption, match="it is lost, or an older one"):
        contents(tmp_path, entry=0)


def test_days_before_the_point_or_that_expire_are_not_looked_at(tmp_path: Path) -> None:
    """Files expire one by one, and their indexes before them."""
    for number, date in ((3, "2020-01-01"), (4, TODAY)):
        put(tmp_path, number - 1, number, named=number if date != TODAY else 0, date=date)
    (tmp_path / "somebody" / "else" / "wrote").mkdir(parents=True)
    (tmp_path / "somebody" / "else" / "wrote" / "CDC000001.json").write_text("{}")
    (tmp_path / EXPIRED_PATH).parent.mkdir(exist_ok=True)
    (tmp_path / EXPIRED_PATH).write_text(json.dumps({"before": "2999-01-01", "finished": False}))
    found = contents(tmp_path)
    assert not found.leftovers and not found.tables


@pytest.mark.parametrize(
    ("name", "value"),
    [("commit_ts", 1 << 70), ("commit_ts", "1"), ("commit_ts", -1), ("position", {"file": 5, "pos": 4}), ("position", {"file": "f", "pos": None}), ("loads", [])],
)  # fmt: skip
def test_a_point_that_is_damaged_is_named(name: str, value: object) -> None:
    point = RecoveryPoint(1, SourcePosition("f", 4), "log", Position(1, 0), Position(1, 0), RowSettings()).to_json()
    assert RecoveryPoint.from_json(point).to_json() == point
    with pytest.raises(Corruption, match="a recovery point cannot be read"):
        RecoveryPoint.from_json({**point, name: value})


def test_schemas_that_are_damaged_are_named(tmp_path: Path) -> None:
    """Columns of another type would make other values of the rows after the point."""
    text, digest = schemas_text([table_schema("orders", 5)])
    place = Position(1, 0)
    point = RecoveryPoint(1, SourcePosition("f", 4), "log", place, place, RowSettings(), schemas=schemas_path(digest))
    files = open_place(f"file://{tmp_path}", REAL_FILES)
    sink = SinkPoint("raw", files, layout_of(FORMAT), open_format(FORMAT, {}), FORMAT, RowSettings(), False, point, 0)
    files.objects.put(point.schemas, text.encode())
    assert [table.name for table in sink.schemas()] == ["shop.orders"]
    files.objects.put(point.schemas, text.replace('"int"', '"bigint"').encode())
    with pytest.raises(Corruption, match="is not what was written there"):
        sink.schemas()

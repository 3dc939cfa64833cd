"""Files expire by the day of their rows and the sink's checkpoint; a reader never meets an index that names a missing file."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from penstock.commit_ts import commit_ts_of
from penstock.delivery.settings import FlushSettings
from penstock.delivery.storage import expiry
from penstock.delivery.storage.expiry import EXPIRED_PATH, Expiry, expired_before
from penstock.delivery.storage.layout import file_number, layout_of
from penstock.delivery.storage.place import OwnedObjects
from penstock.errors import Corruption, Fenced
from penstock.files import Files
from penstock.files.memory import MemoryFiles, PowerCut
from penstock.objects import DirectoryObjects
from tests.delivery.rig import START_MS, DeliveryWorld, data_payload, local_objects, read_tables, stage_all, work

DAY_MS = 86_400_000
TEXT = layout_of("canal-json")


def at_day(number: int) -> int:
    return commit_ts_of(START_MS + number * DAY_MS)


def deliver(root: Path, days: int, *, files_a_day: int = 2) -> None:
    """A sink with the same number of files for each day."""
    world = DeliveryWorld(root, flush=FlushSettings(size=1024, every=5))
    delivery = world.open()
    incarnation = world.begin(delivery, "r1")
    for entry in range(days * files_a_day):
        payload = data_payload("orders", entry, entry, at_ms=START_MS + entry // files_a_day * DAY_MS)
        delivery.publish("r1", incarnation, [stage_all(delivery, "r1", entry, entry, [payload])])
        world.clock.sleep(100)
        work(delivery)


def all_files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def finish(expiry_: Expiry, checkpoint_ts: int) -> int:
    deleted = 0
    while found := expiry_.step(checkpoint_ts):
        deleted += found
    return deleted


def test_days_that_are_long_enough_before_the_checkpoint(tmp_path: Path) -> None:
    deliver(tmp_path, 6)
    foreign = {"shop/orders/5/2001-01-01/notes.txt", "shop/2001-01-01/CDC000001.json"}
    for name in foreign:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x")
    before = all_files(tmp_path)
    objects = local_objects(tmp_path)
    assert finish(Expiry(objects, TEXT, 0), at_day(5)) == 0
    assert finish(Expiry(objects, TEXT, 2), 0) == 0
    assert all_files(tmp_path) == before and expired_before(objects) == ""
    assert finish(Expiry(objects, TEXT, 2), at_day(5)) == 3 * 3  # three days, with two files and an index each
    gone = before - all_files(tmp_path)
    assert {name.split("/")[3] for name in gone} == {"2024-10-04", "2024-10-05", "2024-10-06"}
    assert expired_before(objects) == "2024-10-07"
    for name in foreign:
        (tmp_path / name).unlink()
    lines = [bytes(data_payload("orders", n, n).body) for n in range(6, 12)]
    assert read_tables(tmp_path) == {"orders": lines}
    assert finish(Expiry(objects, TEXT, 9), at_day(5)) == 0, "longer from now on: what is gone stays gone"
    assert finish(Expiry(objects, TEXT, 2), at_day(6)) == 3


def test_parquet_has_another_layout(tmp_path: Path) -> None:
    objects = local_objects(tmp_path)
    names = ["CDC000001.parquet", "_meta/CDC.index"]
    for name in names:
        objects.put(f"shop/%5Fx/version=7/date=2024-10-04/{name}", b"x")
    assert Expiry(objects, TEXT, 1).step(at_day(5)) == 0
    (tmp_path / EXPIRED_PATH).unlink()
    assert finish(Expiry(objects, layout_of("parquet"), 1), at_day(5)) == 2


def test_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "FILES_AT_ONCE", 4)
    deliver(tmp_path, 4)
    made = Expiry(local_objects(tmp_path), TEXT, 1)
    steps = []
    while found := made.step(at_day(3)):
        steps.append(found)
    assert steps == [2, 4]  # two days: indexes first
    assert json.loads((tmp_path / EXPIRED_PATH).read_text()) == {"before": "2024-10-06", "finished": True}


def no_index_names_a_missing_file(objects: DirectoryObjects) -> bool:
    names = set(objects.walk())
    for name in names:
        if name.endswith("CDC.index"):
            found = objects.read(name)
            assert found is not None
            directory, last = name.removesuffix("/meta/CDC.index"), file_number(found.data.decode())
            if not {TEXT.data_path(directory, n) for n in range(1, last + 1)} <= names:
                return False
    return True


def test_a_crash_at_each_file_operation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "FILES_AT_ONCE", 3)
    deliver(tmp_path, 4)

    def sink(files: Files) -> DirectoryObjects:
        return DirectoryObjects("memory", Path("/sink"), files)

    def filled() -> MemoryFiles:
        files = MemoryFiles()
        for name in sorted(all_files(tmp_path)):
            sink(files).put(name, (tmp_path / name).read_bytes())
        return files

    begins = filled().operations + 1
    crashes = 0
    for operation in range(begins, begins + 1000):
        files = filled()
        files.cut_power_at(operation)
        try:
            finish(Expiry(sink(files), TEXT, 1), at_day(3))
            break
        except PowerCut:
            crashes += 1
        for after in (files.kill(), *(files.crash(random.Random(seed)) for seed in range(10))):
            objects = sink(after)
            assert no_index_names_a_missing_file(objects), operation
            finish(Expiry(objects, TEXT, 1), at_day(3))
            assert {name.split("/")[3] for name in objects.walk() if "/CDC" in name} == {"2024-10-06", "2024-10-07"}
    assert crashes > 10


def test_only_the_owner_deletes(tmp_path: Path) -> None:
    deliver(tmp_path, 3)
    before = all_files(tmp_path)

    def fenced(**_options: bool) -> None:
        raise Fenced("another process took it over")

    with pytest.raises(Fenced):
        Expiry(OwnedObjects(local_objects(tmp_path), fenced), TEXT, 1).step(at_day(2))
    assert all_files(tmp_path) == before

    def fenced_since_a_moment(*, now: bool = False) -> None:
        """The last answer still holds; a new one would not."""
        if now:
            fenced()

    with pytest.raises(Fenced):
        Expiry(OwnedObjects(local_objects(tmp_path), fenced_since_a_moment), TEXT, 1).step(at_day(2))
    assert all_files(tmp_path) == {*before, EXPIRED_PATH}


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    objects = local_objects(tmp_path)
    for bad in (b"", b"{}", b'{"before": "soon", "finished": true}'):
        objects.put(EXPIRED_PATH, bad)
        with pytest.raises(Corruption, match="cannot be read"):
            Expiry(objects, TEXT, 1).step(at_day(2))

"""Names at the sink, the owner of a prefix, the checkpoint file, settings."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from penstock.clock import ManualClock
from penstock.commit_ts import commit_ts_of
from penstock.delivery.payload import parse_stage
from penstock.delivery.settings import (
    DeliverySettings,
    FlushSettings,
    SinkSettings,
    local_directory,
)
from penstock.delivery.storage.checkpoint import CheckpointFile
from penstock.delivery.storage.index import Indexes
from penstock.delivery.storage.layout import date_of, encode_name, file_number, layout_of
from penstock.delivery.storage.owner import CHECK_SECONDS_MIN, Claim, claim
from penstock.delivery.storage.place import OwnedObjects, open_place
from penstock.errors import BadInput, Corruption, Fenced, NotSupported, StaleRun, StorageFailed, Terminal, Unavailable
from penstock.files import REAL_FILES, Buffer, File, RealFiles
from penstock.objects import DirectoryObjects, ObjectChanged
from penstock.quantities import parse_seconds, parse_size
from tests.delivery.rig import DeliveryWorld, data_payload, local_objects

# ---- layout


def test_ticdc_layout() -> None:
    layout = layout_of("canal-json")
    directory = layout.data_directory("shop", "orders", 449, "2026-11-16")
    assert layout.data_path(directory, 7) == "shop/orders/449/2026-11-16/CDC00000000000000000007.json"
    assert layout.index_path(directory) == "shop/orders/449/2026-11-16/meta/CDC.index"
    assert layout.schema_directory("shop", "orders") == "shop/orders/meta"
    assert layout.schema_directory("shop", "") == "shop/meta"


def test_parquet_layout() -> None:
    layout = layout_of("parquet")
    directory = layout.data_directory("shop", "orders", 449, "2026-11-16")
    assert layout.data_path(directory, 7) == "shop/orders/version=449/date=2026-11-16/CDC000007.parquet"
    assert layout.index_path(directory) == "shop/orders/version=449/date=2026-11-16/_meta/CDC.index"
    assert layout.schema_directory("shop", "orders") == "shop/orders/_meta"
    assert layout.table_directory("_hidden", "a=b") == "%5Fhidden/a%3Db"
    with pytest.raises(NotSupported, match="avro"):
        layout_of("avro")


def test_names_never_meet_and_never_leave_the_prefix() -> None:
    names = ["a", "A", "..", ".", "a/b", "a%2Fb", "a\\b", "a\0b", "metadata", "_penstock", "ä", "a b", "%2E.", "meta"]
    encoded = [encode_name(name) for name in names]
    assert len(set(encoded)) == len(names)
    for text in encoded:
        assert "/" not in text
        assert "\0" not in text
        assert text not in (".", "..", "metadata", "_penstock")
    assert encode_name("a b") == "a b"
    assert encode_name("ä") == "ä"
    for bad in ("", "x" * 256):
        with pytest.raises(BadInput):
            encode_name(bad)


def test_dates_come_from_commit_ts() -> None:
    midnight = 20_000 * 86_400_000
    assert date_of(commit_ts_of(midnight) - 1) == "2024-10-03"
    assert date_of(commit_ts_of(midnight)) == "2024-10-04"


def test_file_numbers() -> None:
    assert file_number("a/b/CDC00000000000000000012.json") == 12
    assert file_number("CDC000003.parquet\n") == 3
    for bad in ("", "CDC.index", "CDC1.json\r\n", "foo\n"):
        with pytest.raises(Corruption):
            file_number(bad)


def test_the_store_keeps_inside(tmp_path: Path) -> None:
    store = local_objects(tmp_path / "prefix")
    for bad in ("../x", "/etc/x", "a/../../x", "", "a//b", "./a"):
        with pytest.raises(BadInput):
            store.put(bad, b"x")
    assert not (tmp_path / "x").exists()


class BrokenFiles(RealFiles):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def create(self, path: Path) -> File:
        raise OSError(self.number, "no")


def test_a_full_disk_heals_and_a_forbidden_one_does_not(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        local_objects(tmp_path, BrokenFiles(errno.ENOSPC)).put("a/b", b"x")
    with pytest.raises(StorageFailed):
        local_objects(tmp_path, BrokenFiles(errno.EACCES)).put("a/b", b"x")


# ---- owner


def take(root: Path, changefeed: str = "raw", log_uuid: str = "u1", format_name: str = "canal-json") -> Claim:
    place = open_place(str(root), REAL_FILES)
    return claim(place, ManualClock(), changefeed=changefeed, log_uuid=log_uuid, format_name=format_name)


@pytest.mark.parametrize("adopted", [False, True])
def test_files_of_before_a_sink_was_forgotten_are_named(tmp_path: Path, adopted: bool) -> None:
    """It would begin anew in their place: every table would stop at "another writer uses this prefix"."""
    place = open_place(str(tmp_path), REAL_FILES)
    settings: dict[str, str] = {"changefeed": "raw", "log_uuid": "u1", "format_name": "canal-json"}
    claim(place, ManualClock(), anew=True, **settings).close()
    claim(place, ManualClock(), anew=True, **settings).close()  # it was killed before its first file
    place.objects.put("shop/orders/5/2024-10-04/meta/CDC.index", b"CDC00000000000000000001.json\n")
    claim(place, ManualClock(), **settings).close()
    if adopted:
        value = json.loads((tmp_path / "_penstock/owner.json").read_text())
        place.objects.put("_penstock/owner.json", json.dumps({**value, "adopted": True}).encode())
    expected = contextlib.nullcontext() if adopted else pytest.raises(BadInput, match="before it was forgotten")
    with expected:
        claim(place, ManualClock(), anew=True, **settings).close()


def test_one_owner(tmp_path: Path) -> None:
    first = take(tmp_path)
    assert first.owner.epoch == 1
    with pytest.raises(Unavailable, match="in use by another process"):
        take(tmp_path)
    first.close()
    again = take(tmp_path)
    assert again.owner.epoch == 2
    again.close()
    store = local_objects(tmp_path)
    CheckpointFile(store, ManualClock(), "raw").write(5)
    with pytest.raises(BadInput, match="holds files of feed raw, last write 2023-11-14 22:13:20 UTC"):
        take(tmp_path, changefeed="lake")
    with pytest.raises(BadInput, match="holds files of feed raw of another state directory"):
        take(tmp_path, log_uuid="u2")
    with pytest.raises(BadInput, match="holds canal-json files of feed raw, which is set to parquet"):
        take(tmp_path, format_name="parquet")
    assert json.loads((tmp_path / "_penstock/owner.json").read_text())["epoch"] == 2


def test_a_prefix_without_an_owner_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("x")
    with pytest.raises(BadInput, match="no feed of Penstock owns"):
        take(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["something"]


def test_a_claim_that_died_half_way_can_be_made_again(tmp_path: Path) -> None:
    (tmp_path / "_penstock").mkdir()
    (tmp_path / "_penstock/.owner.json.tmp").write_text("{")
    with contextlib.closing(take(tmp_path)) as made:
        assert made.owner.epoch == 1


@pytest.mark.s3
def test_on_a_remote_store_the_last_one_who_claims_it_owns_it(s3_url: str) -> None:
    clock = ManualClock()
    place = open_place(f"{s3_url}/owned", REAL_FILES)
    settings = {"changefeed": "raw", "log_uuid": "u1", "format_name": "canal-json"}
    first = claim(place, clock, **settings)
    objects = OwnedObjects(place.objects, first.check)
    objects.put("shop/one", b"1")
    second = claim(place, clock, **settings)
    assert (first.owner.epoch, second.owner.epoch) == (1, 2)
    clock.advance(CHECK_SECONDS_MIN)
    for work in (lambda: objects.put("shop/two", b"2"), lambda: objects.put_if("shop/two", b"2", None)):
        with pytest.raises(Fenced, match="another process took"):
            work()
    assert place.objects.read("shop/two") is None
    OwnedObjects(place.objects, second.check).put("shop/two", b"2")
    with pytest.raises(BadInput, match="holds files of feed raw"):
        claim(place, clock, **{**settings, "changefeed": "lake"})


def test_a_sink_that_was_deleted_is_noticed_before_anything_is_written(tmp_path: Path) -> None:
    root = tmp_path / "sink"
    made = take(root)
    objects = OwnedObjects(local_objects(root), made.check)
    objects.put("shop/one", b"1")
    shutil.rmtree(root)
    with pytest.raises(Terminal, match=r"no longer has _penstock/owner.json.*not mounted"):
        objects.put("shop/two", b"2")
    made.close()
    assert not root.exists()
    root.mkdir()  # as an empty mount point is
    with pytest.raises(Terminal, match="not mounted"):
        claim(
            open_place(str(root), REAL_FILES),
            ManualClock(),
            changefeed="raw",
            log_uuid="u1",
            format_name="canal-json",
            delivered=True,
        )
    assert list(root.iterdir()) == []


# ---- index


def test_an_index_goes_forward_only(tmp_path: Path) -> None:
    objects = local_objects(tmp_path)
    indexes = Indexes(objects)
    assert indexes.last_number("t/meta/CDC.index") == 0
    indexes.name("t/meta/CDC.index", "CDC000001.json")
    indexes.name("t/meta/CDC.index", "CDC000002.json")
    other = Indexes(objects)
    other.name("t/meta/CDC.index", "CDC000002.json")  # the answer to an earlier try was lost
    other.name("t/meta/CDC.index", "CDC000003.json")
    with pytest.raises(ObjectChanged):
        indexes.name("t/meta/CDC.index", "CDC000009.json")
    with pytest.raises(Terminal, match="names file 3 already"):
        Indexes(objects).name("t/meta/CDC.index", "CDC000002.json")
    assert (tmp_path / "t/meta/CDC.index").read_bytes() == b"CDC000003.json\n"


# ---- checkpoint


def test_checkpoint_is_rare_and_never_goes_back(tmp_path: Path) -> None:
    clock = ManualClock()
    store = local_objects(tmp_path)
    file = CheckpointFile(store, clock, "raw")
    assert file.write(10)
    clock.advance(1.9)
    assert not file.write(11)
    clock.advance(0.1)
    assert file.write(11)
    clock.advance(5)
    assert not file.write(11)
    assert not file.write(9)
    assert (tmp_path / "metadata").read_bytes() == b'{"checkpoint-ts":11}'
    after_restart = CheckpointFile(store, clock, "raw")
    assert not after_restart.write(10)
    assert after_restart.write(12)
    clock.advance(0.1)
    assert after_restart.write(13, at_once=True)
    assert json.loads((tmp_path / "_penstock/progress.json").read_text())["checkpoint_ts"] == 13


def test_an_old_process_does_not_take_the_checkpoint_back(tmp_path: Path) -> None:
    old, new = (CheckpointFile(local_objects(tmp_path), ManualClock(), "raw") for _ in range(2))
    assert old.write(10)
    assert new.write(20)
    with pytest.raises(ObjectChanged):
        old.write(15, at_once=True)
    assert not old.write(15, at_once=True)  # it has looked again
    assert (tmp_path / "metadata").read_bytes() == b'{"checkpoint-ts":20}'
    assert new.write(21, at_once=True)


def test_nor_what_it_says_of_it_to_others(tmp_path: Path) -> None:
    """It falls asleep between its two puts."""
    objects = local_objects(tmp_path)
    new = CheckpointFile(objects, ManualClock(), "raw")

    class Sleepy(DirectoryObjects):
        def put(self, name: str, data: Buffer) -> None:
            self._wake(name)
            super().put(name, data)

        def put_if(self, name: str, data: Buffer, token: str | None) -> str:
            self._wake(name)
            return super().put_if(name, data, token)

        def _wake(self, name: str) -> None:
            if name.endswith("progress.json"):
                assert new.write(20)

    old = CheckpointFile(Sleepy(str(tmp_path), tmp_path, REAL_FILES), ManualClock(), "raw")
    with pytest.raises(ObjectChanged):
        old.write(10)
    assert json.loads((tmp_path / "_penstock/progress.json").read_text())["checkpoint_ts"] == 20


@pytest.mark.parametrize(
    "damaged",
    [
        b"{",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"changefeed": "raw", "checkpoint_ts": "x"}',
        b'{"changefeed": "raw", "point": "x"}',
        b'{"changefeed": "raw", "point": {"x": 1}}',
        b'{"changefeed": "raw", "point": {"schemas": "../../etc/passwd"}}',
    ],
)
def test_a_progress_object_that_cannot_be_read_is_named_and_the_checkpoint_goes_on(
    tmp_path: Path, damaged: bytes
) -> None:
    """Any other error would end the thread that writes the checkpoint, and looks for tables that can be replayed."""
    objects = local_objects(tmp_path)
    objects.put("_penstock/progress.json", damaged)
    file = CheckpointFile(objects, ManualClock(), "raw", ask_point=lambda _known: {"point": None, "schemas": None})
    for checkpoint_ts in (10, 11):
        with pytest.raises(Corruption, match=r"progress\.json cannot be read"):
            file.write(checkpoint_ts, at_once=True)
    assert (tmp_path / "metadata").read_bytes() == b'{"checkpoint-ts":11}'
    assert (tmp_path / "_penstock/progress.json").read_bytes() == damaged, "nor is it overwritten"


def test_an_index_that_is_no_text_is_named(tmp_path: Path) -> None:
    objects = local_objects(tmp_path)
    objects.put("t/meta/CDC.index", b"\xff\xfe")
    with pytest.raises(Corruption, match="is not the name of a data file"):
        Indexes(objects).last_number("t/meta/CDC.index")


# ---- settings and messages


def test_urls() -> None:
    assert local_directory("file:///a/b%20c") == Path("/a/b c")
    assert local_directory("x/y") == Path("x/y").absolute()
    with pytest.raises(NotSupported, match="kafka"):
        local_directory("kafka://broker:9092")
    for url in ("kafka://broker:9092", "s3://", "s3://key:secret@bucket/x", "gs://b/x?token=secret"):
        with pytest.raises(ValidationError) as refused:
            SinkSettings(url=url, format="parquet")
        assert "secret" not in str(refused.value).partition("[type")[0]
    for url in ("s3://bucket/x", "gs://b", "az://container/x/y"):
        assert SinkSettings(url=url, format="parquet").url == url
    with pytest.raises(BadInput, match="names no host"):
        local_directory("file://a/b")


def test_quantities() -> None:
    assert (parse_size("64MiB"), parse_size("1kB"), parse_size(7)) == (64 << 20, 1000, 7)
    assert (parse_seconds("5m"), parse_seconds("250ms"), parse_seconds("60s")) == (300.0, 0.25, 60.0)
    for bad in ("64 parsecs", "", None, True, "-1s"):
        with pytest.raises(ValueError):
            parse_size(bad)
    assert FlushSettings() == FlushSettings.model_validate({"size": "64MiB", "every": "1m"})
    with pytest.raises(ValidationError):
        FlushSettings.model_validate({"size": "1"})
    with pytest.raises(ValidationError, match="spool watermarks: low 2 bytes must be at most high 1 bytes"):
        DeliverySettings(state_dir=Path("x"), changefeeds={}, spool_high_bytes=1, spool_low_bytes=2)


def stage_message() -> dict[str, object]:
    payload = data_payload("orders", 0, 3)
    names = (
        "kind",
        "dispatcher",
        "epoch",
        "schema",
        "table",
        "version",
        "date",
        "first_commit_ts",
        "last_commit_ts",
        "rows",
    )
    message = {name: getattr(payload, name) for name in names}
    seqs = {"first_seq": str(payload.first_seq), "last_seq": str(payload.last_seq)}
    return {**message, **seqs, "run": "r", "start": "1:0", "end": "1:3", "attempt": 0, "ordinal": 0}


def test_stage_messages_are_checked() -> None:
    assert parse_stage(stage_message(), memoryview(b"x"))[1].rows == 4
    wrong = {
        "kind": "other",
        "dispatcher": "12",
        "date": "2020-01-01",
        "rows": 0,
        "last_seq": "1:2",
        "start": "x",
        "first_seq": "9:9:9:9",
    }
    for name, value in wrong.items():
        with pytest.raises(BadInput):
            parse_stage({**stage_message(), name: value}, memoryview(b"x"))
    for name in stage_message():
        message = stage_message()
        del message[name]
        with pytest.raises(BadInput, match=name):
            parse_stage(message, memoryview(b"x"))


def test_a_dead_letter_is_at_the_sink_when_it_is_answered(tmp_path: Path) -> None:
    world = DeliveryWorld(tmp_path)
    delivery = world.open()
    world.begin(delivery, "r1")
    for _ in range(2):  # a task that runs again puts the same
        delivery.dead_letter("r1", "shop", "a/b", "1:2:3:4", b"{}\n")
    assert (tmp_path / "_penstock/dead/shop/a%2Fb/1-2-3-4.json").read_bytes() == b"{}\n"
    assert delivery.status()["dead_letters"] == 2
    assert 'penstock_dead_letters_total{changefeed="raw"} 2.0' in world.metrics.render().decode()
    with pytest.raises(StaleRun):
        delivery.dead_letter("r0", "shop", "a", "1:2:3:4", b"")

"""The whole way of an offload with a directory and with a real S3 server."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.errors import Unavailable
from penstock.log import (
    Log,
    LogReader,
    LogSettings,
    Position,
)
from penstock.objects import open_objects
from tests.log.offload.world import ENTRIES, payload

pytestmark = pytest.mark.usefixtures("small_blocks")


def test_the_whole_way_on_a_real_store(url: str, tmp_path: Path) -> None:
    settings = LogSettings(
        ledger_entries_max=40,
        maintenance_interval_seconds=0,
        offload_url=url,
        offload_deletion_lag_seconds=0,
        offload_part_bytes=512 << 10,
        retention_seconds=0,
    )
    directory = tmp_path / "log"
    rng = random.Random(3)
    data = [rng.randbytes(rng.randrange(30_000)) for _ in range(150)]
    with Log.open(directory, settings) as log:
        cursor = log.open_cursor("c")
        for entry in data:
            log.append(entry)
        log.append(b"last").result()
        assert log.offload() == [1, 2, 3]
        log.offload()
        assert [path.name for path in directory.glob("ledger-*")] == [f"ledger-{4:016d}.log"]
        log.reader().cache.drop(log.reader().cache_key)
        assert [bytes(entry.data) for entry in log.read(Position(1, 0), log.end())][:-1] == data
        reader = LogReader.open(directory)
        assert [bytes(entry.data) for entry in reader.read(Position(2, 7), Position(3, 9))] == data[47:90]
        assert [info.data_bytes for info in reader.scan(reader.first, Position(3, 39))] == [
            len(one) for one in data[:120]
        ]
        assert len(open_objects(url).list(str(log.uuid))) > 6
        cursor.mark_delete(Position(1, 39)).result()
        cursor.close()
        assert log.trim() == [1]
        assert len({name.split("-")[-2] for name in open_objects(url).list(str(log.uuid))}) >= 2
        assert [bytes(entry.data) for entry in reader.read(reader.first, Position(3, 39))] == data[40:120]
        reader.close()
        uuid = log.uuid
    Log.delete(directory)
    assert open_objects(url).list(str(uuid)) == []


@pytest.mark.s3
def test_a_store_that_goes_away_in_the_middle(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.objects.remote import RemoteObjects

    settings = LogSettings(ledger_entries_max=3, maintenance_interval_seconds=0, offload_url=s3_url,
                           offload_deletion_lag_seconds=0, offload_part_bytes=256)  # fmt: skip
    with Log.open(tmp_path / "log", settings) as log:
        for number in range(ENTRIES):
            log.append(payload(number)).result()
        put, puts = RemoteObjects.put, 0

        def cut_off(store: RemoteObjects, name: str, data: bytes) -> None:
            nonlocal puts
            puts += 1
            if puts == 4:
                raise Unavailable("the connection is gone")
            put(store, name, data)

        with monkeypatch.context() as patch:
            patch.setattr(RemoteObjects, "put", cut_off)
            with pytest.raises(Unavailable, match="connection is gone"):
                log.offload()
        assert open_objects(s3_url).list(str(log.uuid)) == [], "what was put is deleted again"
        assert log.offload() == [1, 2, 3]
        log.offload()
        log.reader().cache.drop(log.reader().cache_key)
        assert [bytes(entry.data) for entry in log.read(Position(1, 0), log.end())] == list(
            map(payload, range(ENTRIES))
        )

"""The demo's shop with another ALTER TABLE in its binlog: its table is followed or parked, and no other is touched."""

from __future__ import annotations

from pathlib import Path

from penstock.binlog.events import split_events
from penstock.binlog.types import EventType
from penstock.capture.loop import Capture, open_log
from penstock.log import LogReader
from penstock.operations.verify.log_replay import LogReplay
from penstock.sources.binlog_files import BinlogFilesSource
from penstock.sources.demo.plan import Plan
from penstock.sources.demo.stream import chunk_file
from penstock.sources.settings import BinlogFilesSettings
from tests.capture.streams import event

CHANGES = 20_000


def replayed(
    directory: Path, old: bytes, new: bytes, lower_case_table_names: int = 0
) -> tuple[dict[str, int], LogReplay]:
    """Captures the shop with `new` instead of `old` in its ALTER TABLE: rows by table and number of columns."""
    plan = Plan(1, CHANGES)
    binlogs = directory / "bin"
    binlogs.mkdir(parents=True)
    changed = 0
    for number in range(plan.chunks):
        file = chunk_file(plan, number)
        raw = file.data.tobytes()
        events = split_events(file.data[4:])
        out = bytearray(raw[:4])
        for offset, size, kind in zip(events.offset.tolist(), events.size.tolist(), events.type.tolist(), strict=True):
            one = raw[4 + offset : 4 + offset + size]
            if kind == EventType.QUERY and b"ALTER TABLE" in one:
                one = event(EventType.QUERY, one[19:-4].replace(old, new), len(out))
                changed += 1
            out += one
        (binlogs / file.name).write_bytes(out)
    assert changed == 1
    settings = BinlogFilesSettings(type="binlog-files", path=binlogs, lower_case_table_names=lower_case_table_names)
    log = open_log(directory)
    try:
        assert Capture(log, BinlogFilesSource(settings)).run()
    finally:
        log.close()
    reader = LogReader.open(directory / "log")
    replay = LogReplay(reader, reader.end())
    rows: dict[str, int] = {}
    for batch, _ in replay.changes():
        name = f"{batch.table.name} {len(batch.table.columns)}"
        rows[name] = rows.get(name, 0) + len(batch)
    reader.close()
    return rows, replay


def test_names_in_another_case(tmp_path: Path) -> None:
    """As a server with lower_case_table_names=1 logs it: the rows after it could never be decoded."""
    whole, replay = replayed(tmp_path / "as it is", b"orders", b"orders")
    assert not replay.parked and len([name for name in whole if name.startswith("shop.orders ")]) == 2
    rows, replay = replayed(tmp_path / "other case", b"orders", b"Orders", lower_case_table_names=1)
    assert rows == whole and not replay.parked


def test_a_statement_that_nobody_understands_parks_its_table_alone(tmp_path: Path) -> None:
    whole, _ = replayed(tmp_path / "as it is", b"orders", b"orders")
    rows, replay = replayed(tmp_path / "parked", b"ADD COLUMN", b"FROBNICATE")
    assert set(replay.parked) == {"shop.orders"} and "FROBNICATE" in replay.parked["shop.orders"].query
    before, after = sorted(name for name in whole if name.startswith("shop.orders "))
    assert rows == {name: count for name, count in whole.items() if name != after} and rows[before]

"""Logs and sinks for reading tables: a binlog captured by real capture, and its changes delivered by real delivery to a
sink of any format; without Spark, which changes nothing of what is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.capture.loop import Capture, open_log
from penstock.clock import SYSTEM_CLOCK
from penstock.delivery.payload import Payload, StageKey
from penstock.delivery.staging import PublishRange
from penstock.delivery.storage.layout import OWNER_PATH, date_of
from penstock.delivery.storage.owner import Owner
from penstock.encode import open_assembler, open_format
from penstock.encode.settings import OPTIONS, identity
from penstock.entries.decode import decode_entries
from penstock.log import LogReader
from penstock.log.position import Position, Seq
from penstock.operations.verify.log_replay import read_history
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.forwarding import forwarded
from penstock.sources.binlog_files import BinlogFilesSource
from penstock.sources.settings import BinlogFilesSettings
from tests.delivery.rig import CHANGEFEED, DeliveryWorld, id_of, local_objects
from tests.support.waiting import LIMIT_SECONDS


def capture_files(state_dir: Path, binlogs: Path) -> None:
    """The log of a state directory has everything that the binlog files of a directory hold by now."""
    log = open_log(state_dir)
    try:
        Capture(log, BinlogFilesSource(BinlogFilesSettings(type="binlog-files", path=binlogs))).run()
    finally:
        log.close()


def deliver(state_dir: Path, sink: Path, format_name: str, options: dict[str, Any] | None = None) -> None:
    """Everything in the log is at a new sink, whose documents say so."""
    reader = LogReader.open(state_dir / "log")
    history = read_history(reader)
    start, end = reader.first, history.complete_end
    payloads: list[Payload] = []
    for change in decode_entries(reader.read(start, end), history.schemas, void=history.void):
        if isinstance(change, SchemaChange):
            payloads.append(_ddl(change))
        else:
            payloads.extend(_data(change, format_name, options))
    objects = local_objects(sink)
    checked = OPTIONS[format_name].model_validate(options or {})
    owner = Owner(CHANGEFEED, str(reader.uuid), identity(format_name, checked), 1, 0, "test")
    objects.put(OWNER_PATH, owner.to_bytes())
    assembler = open_assembler(format_name, options)
    world = DeliveryWorld(sink, clock=SYSTEM_CLOCK, format_name=format_name, assembler=assembler)
    delivery = world.open(writers=2)
    incarnation = world.begin(delivery, "r1")
    for ordinal, payload in enumerate(payloads):
        delivery.stage(StageKey("r1", start, end, 0, ordinal), payload)
    last = max((payload.last_commit_ts for payload in payloads), default=0)
    delivery.publish("r1", incarnation, [PublishRange(start, end, 0, len(payloads), last)])
    delivery.flush(LIMIT_SECONDS)
    delivery.close(LIMIT_SECONDS)
    reader.close()


def _data(batch: ChangeBatch, format_name: str, options: dict[str, Any] | None) -> Iterator[Payload]:
    fmt = open_format(format_name, options)
    dates = np.array([date_of(int(ts)) for ts in batch.commit_ts])
    for date in dict.fromkeys(dates.tolist()):
        (rows,) = np.nonzero(dates == date)
        part = batch.slice(int(rows[0]), int(rows[-1]) + 1)
        yield _payload(part, int(part.commit_ts[0]), int(part.commit_ts[-1]), kind="data", rows=len(part), date=date,
            body=bytes(fmt.encode(part)), first=part.seq[0].tobytes(), last=part.seq[-1].tobytes(),
            table_schema=part.table.to_json())  # fmt: skip


def _ddl(change: SchemaChange) -> Payload:
    needed = [table.to_json() for table in change.needed]
    text = forwarded(change, lambda _schema, _table: True).to_json().encode()
    ts = change.commit_ts
    return _payload(change, ts, ts, kind="ddl", rows=0, date=date_of(ts), body=text, first=change.seq, last=change.seq,
        table_schema=json.dumps(needed) if needed else None)  # fmt: skip


def _payload(change: Any, first_ts: int, last_ts: int, *, first: bytes, last: bytes, **values: Any) -> Payload:
    return Payload(
        dispatcher=id_of(f"{change.table.schema}.{change.table.table}"),
        epoch=1,
        schema=change.table.schema,
        table=change.table.table,
        version=change.table.version,
        first_seq=Seq.from_bytes(first),
        last_seq=Seq.from_bytes(last),
        first_commit_ts=first_ts,
        last_commit_ts=last_ts,
        **values,
    )


__all__ = ["Position", "capture_files", "deliver"]

"""A small world around delivery: a stream of rows with DDL, a task that splits it into payloads, and a tiny format.

A payload of the format is one line a row, and a file is their concatenation: a function of the rows alone, as every
format must be.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.clock import Clock, ManualClock
from penstock.commit_ts import commit_ts_of
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.keeper_client import DispatcherStart
from penstock.delivery.payload import Payload, StageKey, dispatcher_id
from penstock.delivery.settings import FlushSettings
from penstock.delivery.spool import Disk, SpoolLimits
from penstock.delivery.staging import PublishRange
from penstock.delivery.storage.checkpoint import CheckpointFile
from penstock.delivery.storage.ddl import SchemaFiles
from penstock.delivery.storage.layout import date_of, file_number, layout_of
from penstock.delivery.storage.place import SinkObjects
from penstock.delivery.storage.sink import StorageSink
from penstock.encode import Assembler
from penstock.files import REAL_FILES, Buffer, Files, read_file
from penstock.log.position import Position, Seq
from penstock.objects import DirectoryObjects
from penstock.observe.metrics import Metrics
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.schema_file import schema_file
from tests.consumer.consumer import read_sink, settings_for
from tests.delivery.memory_keeper import MemoryKeeper

CHANGEFEED = "raw"
DAY_MS = 86_400_000
START_MS = 20_000 * DAY_MS + 23 * 3_600_000  # an hour before midnight UTC


class LineFormat:
    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        yield from payloads


@dataclass(frozen=True)
class Row:
    seq: Seq
    commit_ts: int
    schema: TableSchema
    ddl: bool = False

    @property
    def line(self) -> bytes:
        return f"{self.seq} {self.schema.version}\n".encode()


def table_schema(table: str, version: int, columns: int = 1) -> TableSchema:
    fields = tuple(Column(f"c{i}", "int") for i in range(columns))
    query = f"ALTER TABLE `shop`.`{table}` ADD COLUMN c{columns - 1} int"
    return TableSchema("shop", table, version, fields, query, DdlType.ADD_COLUMN)


def id_of(table: str) -> str:
    return dispatcher_id(CHANGEFEED, "shop", table)


def stream(
    entries: int, *, tables: Sequence[str] = ("orders", "items"), seed: int = 1, ddl_every: int = 0
) -> list[Row]:
    """Entries 0 to n-1 of ledger 1 with some rows of each table; time passes midnight half-way; some entries are DDL."""
    random_ = random.Random(seed)
    schemas = {t: table_schema(t, 5) for t in tables}
    rows = []
    for entry in range(entries):
        ts = commit_ts_of(START_MS + entry * 2 * 3_600_000 // max(1, entries)) + entry
        if ddl_every and entry % ddl_every == ddl_every - 1:
            table = random_.choice(list(tables))
            schemas[table] = table_schema(table, ts, len(schemas[table].columns) + 1)
            rows.append(Row(Seq(1, entry, 0, 0), ts, schemas[table], ddl=True))
            continue
        for event, table in enumerate(tables):
            for row in range(random_.randint(0, 4)):
                rows.append(Row(Seq(1, entry, event, row), ts, schemas[table]))
    return rows


def payloads_of(
    rows: Sequence[Row], facts: dict[str, DispatcherStart], *, rows_max: int, epoch: int = 1
) -> list[Payload]:
    """What a task makes of a range: drops rows at or below progress; ends payloads at intents, dates, versions and `rows_max`."""
    made: list[Payload] = []
    open_: dict[str, list[Row]] = {}

    def end_payload(identity: str) -> None:
        group = open_.pop(identity, [])
        if group:
            made.append(_data(identity, group, epoch))

    for row in rows:
        identity = id_of(row.schema.table)
        fact = facts.get(identity)
        if fact is not None and fact.progress is not None and row.seq <= fact.progress:
            continue
        group = open_.get(identity, [])
        if group and (row.ddl or _key(group[-1]) != _key(row) or len(group) >= rows_max):
            end_payload(identity)
        if row.ddl:
            for other in list(open_):  # a task ends every payload at a DDL
                end_payload(other)
            made.append(ddl_payload(row, epoch))
            continue
        open_.setdefault(identity, []).append(row)
        if fact is not None and fact.intent is not None and row.seq == fact.intent.last_seq:
            end_payload(identity)
    for identity in list(open_):
        end_payload(identity)
    return made


def _key(row: Row) -> tuple[int, str]:
    return row.schema.version, date_of(row.commit_ts)


def _data(identity: str, group: Sequence[Row], epoch: int) -> Payload:
    first, last = group[0], group[-1]
    return Payload(
        kind="data",
        dispatcher=identity,
        epoch=epoch,
        schema="shop",
        table=first.schema.table,
        version=first.schema.version,
        date=date_of(first.commit_ts),
        first_seq=first.seq,
        last_seq=last.seq,
        first_commit_ts=first.commit_ts,
        last_commit_ts=last.commit_ts,
        rows=len(group),
        body=b"".join(row.line for row in group),
        table_schema=first.schema.to_json(),
    )


def data_payload(table: str, first: int, last: int, *, version: int = 5, at_ms: int = START_MS) -> Payload:
    """Entries `first` to `last`, one row each."""
    schema = table_schema(table, version)
    return _data(
        id_of(table), [Row(Seq(1, e, 0, 0), commit_ts_of(at_ms) + e, schema) for e in range(first, last + 1)], 1
    )


def ddl_payload(row: Row, epoch: int = 1) -> Payload:
    return Payload(
        kind="ddl",
        dispatcher=id_of(row.schema.table),
        epoch=epoch,
        schema="shop",
        table=row.schema.table,
        version=row.schema.version,
        date=date_of(row.commit_ts),
        first_seq=row.seq,
        last_seq=row.seq,
        first_commit_ts=row.commit_ts,
        last_commit_ts=row.commit_ts,
        rows=0,
        body=row.schema.to_json().encode(),
    )


def local_objects(root: Path, files: Files = REAL_FILES) -> DirectoryObjects:
    return DirectoryObjects(str(root), root, files)


@dataclass
class DeliveryWorld:
    """One changefeed; `open` starts a new incarnation over the same keeper and directory."""

    root: Path
    keeper: MemoryKeeper = field(default_factory=MemoryKeeper)
    clock: Clock = field(default_factory=ManualClock)
    format_name: str = "canal-json"
    flush: FlushSettings = field(default_factory=lambda: FlushSettings(size=1024, every=60))
    limits: SpoolLimits = field(default_factory=SpoolLimits)
    disk: Disk | None = None
    store: SinkObjects | None = None
    assembler: Assembler = field(default_factory=LineFormat)
    metrics: Metrics = field(default_factory=Metrics)
    incarnations: int = 0

    def open(self, *, writers: int = 0) -> ChangefeedDelivery:
        self.incarnations += 1
        store = self.store or local_objects(self.root)
        layout = layout_of(self.format_name)
        sink = StorageSink(
            CHANGEFEED,
            layout=layout,
            assembler=self.assembler,
            store=store,
            keeper=self.keeper,
            schemas=SchemaFiles(layout, store, schema_file),
            checkpoint=CheckpointFile(store, self.clock, CHANGEFEED),
        )
        return ChangefeedDelivery(
            CHANGEFEED,
            incarnation=f"i{self.incarnations}",
            keeper=self.keeper,
            open_sink=lambda: sink,
            flush=self.flush,
            limits=self.limits,
            clock=self.clock,
            writers=writers,
            disk=self.disk,
            metrics=self.metrics,
        )

    def begin(self, delivery: ChangefeedDelivery, run: str) -> str:
        incarnation = str(delivery.begin_run(run)["incarnation"])
        self.keeper.begin_run(run)
        return incarnation


def stage_all(
    delivery: ChangefeedDelivery, run: str, start: int, end: int, payloads: Sequence[Payload], *, attempt: int = 0
) -> PublishRange:
    first, last = Position(1, start), Position(1, end)
    for ordinal, payload in enumerate(payloads):
        delivery.stage(StageKey(run, first, last, attempt, ordinal), payload)
    ts = max((p.last_commit_ts for p in payloads), default=0)
    return PublishRange(first, last, attempt, len(payloads), ts)


def work(delivery: ChangefeedDelivery) -> None:
    """Everything that is due now, on this thread."""
    assert delivery.writer is not None
    while delivery.writer.step():
        pass


def export(files: Files, source: Path, to: Path) -> Path:
    """Copies what a file system in memory shows to a real directory, so that it is read as any other sink."""
    for name in files.list(source):
        try:
            content = read_file(files, source / name)
        except OSError:
            export(files, source / name, to / name)
        else:
            to.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes(content)
    return to


def read_tables(root: Path, format_name: str = "canal-json") -> dict[str, list[bytes]]:
    """Lines of every table as a consumer reads them: versions and dates in order, files 1 to what the index names."""
    meta = layout_of(format_name).meta
    # The lines of `LineFormat` are no rows, but everything else is as TiCDC's consumer needs it, after a crash too.
    read_sink(root, replace(settings_for(format_name, settled=False), protocol=None))
    found: dict[str, list[bytes]] = {}
    for index in sorted(root.glob(f"shop/*/*/*/{meta}/CDC.index"), key=_directory_order):
        directory = index.parent.parent
        last = file_number(index.read_text())
        names = sorted(p.name for p in directory.glob("CDC*"))
        assert [file_number(n) for n in names][:last] == list(range(1, last + 1)), (directory, names, last)
        version = directory.parent.name.removeprefix("version=")
        schemas = list((directory.parent.parent / meta).glob(f"schema_{version}_*.json"))
        assert len(schemas) == 1, (directory, schemas)
        for name in names[:last]:
            found.setdefault(directory.parent.parent.name, []).extend((directory / name).read_bytes().splitlines(True))
    return found


def _directory_order(path: Path) -> tuple[str, int, str]:
    directory = path.parent.parent
    return directory.parent.parent.name, int(directory.parent.name.removeprefix("version=")), directory.name


def files_of(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("CDC*")) if p.is_file()}


def expected_tables(rows: Sequence[Row]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for row in rows:
        if not row.ddl:
            found.setdefault(row.schema.table, []).append(row.line)
    return found


def metadata(root: Path) -> dict[str, Any]:
    return dict(json.loads((root / "metadata").read_text()))

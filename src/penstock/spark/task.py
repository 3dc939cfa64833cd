"""A task: one range of the log, from raw entries to payloads staged with delivery.

The bytes go straight to delivery; Spark gets one `RangeManifest`. A task that dies, or runs twice, leaves staged
payloads under an attempt that nobody publishes. A `PenstockError` is returned inside the manifest, because Spark must
not retry a task whose error cannot heal or needs a new run. Any other exception is raised, and Spark retries the task.

Log readers, connections and learnt row sizes are kept in this module, because one Python worker serves many tasks. Each
of them can be rebuilt at any moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from penstock.delivery.payload import dispatcher_id
from penstock.delivery.storage.layout import date_of
from penstock.encode import open_format
from penstock.encode.poison import Part, dead_letter, encode_parts
from penstock.entries.decode import decode_entries
from penstock.entries.format import Kind, parse_entry
from penstock.entries.format import Part as TransactionPart
from penstock.errors import PenstockError
from penstock.log import Entry, LogReader
from penstock.log.position import Seq
from penstock.rules.passage import Passage
from penstock.rules.routes import Name
from penstock.rules.rules import Change, Rules, everything
from penstock.rules.sql.rows import Sql
from penstock.rules.versioned import VersionedRules
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.forwarding import forwarded
from penstock.schema.model import DdlType
from penstock.schema.view import SchemaView
from penstock.secret import Secret
from penstock.spark.failure import PipelineFailure, Where, error_to_text
from penstock.spark.job import Job
from penstock.spark.payload_split import PAYLOAD_BYTES, Resume, rows_up_to, split_into_payloads
from penstock.spark.plan import PlannedRange, Routing, preceding
from penstock.spark.range_manifest import RangeManifest, freeze_once
from penstock.spark.sql.worker import RangeResults
from penstock.wire import Client

_ROW_BYTES_FIRST_GUESS = 256.0
_STAGE_SECONDS_MAX = 120.0
_JOBS_KEPT = 8  # by a worker: those of the changefeeds that it serves

_readers: dict[str, LogReader] = {}
_clients: dict[str, Client] = {}
_rules: dict[tuple[object, ...], VersionedRules] = {}
_results = RangeResults()  # of the range that the worker is at
_row_bytes: dict[
    tuple[str, str, str], float
] = {}  # by (format, schema, table): encoded bytes per row of the last payload


@lru_cache(maxsize=_JOBS_KEPT)
def job_of(text: str) -> Job:
    """The job, read once by each worker."""
    return Job.from_json(text)


def run_range(job: Job, taken: PlannedRange, attempt: int) -> RangeManifest:
    """Stages the rows of a range that come after progress. A `PenstockError` is not raised but put into the
    manifest."""
    freeze_once()
    job.configure_cache()
    manifest = RangeManifest(taken.start, taken.end, attempt, extra=taken.is_extra)
    where: Where = "source"
    try:
        with manifest.timed("task"):
            stager = _Stager(job, manifest, taken.routing)
            for change in _changes(job, taken, manifest):
                where = "sink"
                stager.take(change)
                where = "source"
    except PipelineFailure as failure:
        manifest.error = error_to_text(failure.error, failure.where)
    except PenstockError as error:
        manifest.error = error_to_text(error, where)
        forget_connections()
    return manifest


def forget_connections() -> None:
    for client in _clients.values():
        client.close()
    _clients.clear()


def _changes(job: Job, taken: PlannedRange, manifest: RangeManifest) -> Iterator[ChangeBatch | SchemaChange]:
    """What the sink sees of the range, under the names that tables have there."""
    _results.hold(taken.sql)
    for shaped in steps_of(job, taken, manifest, rules_of(job).at(taken.start)):
        while True:
            with manifest.timed("rules"):
                one = next(shaped, None)
            if one is None:
                break
            yield one


def steps_of(
    job: Job, taken: PlannedRange, manifest: RangeManifest, rules: Rules, only: Name | None = None
) -> Iterator[Iterator[Change]]:
    """What the sink sees of the range, change by change of the log: each must be exhausted before the next. `only`: the rows
    and DDL of one table of the source."""
    schemas = taken.view()
    begins = taken.start in job.boundaries
    passage = Passage(rules, schemas.names() if rules.has_routes or begins else (), schemas)
    if begins:
        yield passage.begin(schemas.in_force(preceding(taken.start)))
    for change in _decoded(job, taken, schemas, manifest, passage, only=only):
        yield passage.apply(change)
    yield passage.finish()


def versioned_rules(job: Job, sql: Sql) -> VersionedRules:
    key = job.mask_key()
    return VersionedRules(job.settings_versions(), Secret(key).reveal() if key is not None else None, sql)


def rules_of(job: Job) -> VersionedRules:
    """The worker's rules of the changefeed, which it keeps for the tasks to come: they are bound to a table once."""
    key = (job.changefeed, json.dumps(job.settings), json.dumps(job.rules), job.mask_key_file, job.only, job.exclude, job.source_include, job.source_exclude)  # fmt: skip
    if key not in _rules:
        _rules[key] = versioned_rules(job, _results)
    return _rules[key]


def _decoded(
    job: Job, taken: PlannedRange, schemas: SchemaView, manifest: RangeManifest, passage: Passage, *, only: Name | None
) -> Iterator[ChangeBatch | SchemaChange]:
    rules = passage.rules
    # Rules may move a table, and stop one because of another: then none is passed over.
    replayed = None if rules else taken.routing.only

    def wanted(schema: str, table: str) -> bool:
        if only is not None and (schema, table) != only:
            return False
        # Of a database everything is as in a regular range, where its own dispatcher has it: a DROP DATABASE drops no table alone.
        if replayed is not None and table and dispatcher_id(job.changefeed, schema, table) not in replayed:
            return False
        return rules.wants(schema, table) and (bool(table) or rules.sees_database(schema))

    entries = _entries(job, taken, manifest)
    changes = decode_entries(entries, schemas, wanted, taken.void, parks=True, on_group=passage.next_group)
    while True:
        read = manifest.seconds.get("read", 0.0)
        with manifest.timed("decode"):
            change = next(changes, None)
        manifest.seconds["decode"] -= manifest.seconds.get("read", 0.0) - read  # decoding reads the entries as it goes
        if change is None:
            return
        name = (change.table.schema, change.table.table)
        if rules.wants(*name) and only in (None, name):  # the decoder passes on the DDL of whole databases unfiltered
            yield change


def _entries(job: Job, taken: PlannedRange, manifest: RangeManifest) -> Iterator[Entry]:
    entries = open_reader(job).read(taken.first, taken.end)
    while True:
        with manifest.timed("read"):
            entry = next(entries, None)
        if entry is None:
            return
        if len(entry.data):  # an entry without data only carries state changes
            manifest.read_bytes += len(entry.data)
            manifest.commit_ts = max(manifest.commit_ts, _last_commit_ts(entry))
            yield entry


def _last_commit_ts(entry: Entry) -> int:
    transactions = parse_entry(entry.data).transactions
    ends = np.isin(transactions["part"], (TransactionPart.WHOLE, TransactionPart.LAST)) & np.isin(
        transactions["kind"], (Kind.ROWS, Kind.DDL, Kind.CHUNK)
    )
    return int(transactions["commit_ts"][ends].max(initial=0))


def open_reader(job: Job) -> LogReader:
    """The worker's reader of the log, which it keeps for the tasks to come. The worker belongs to one run's settings."""
    key = str(job.log_directory)
    if key not in _readers:
        _readers[key] = LogReader.open(job.log_directory, read_attempts_max=job.read_attempts_max)
    return _readers[key]


class _Stager:
    """Encodes changes and hands them to delivery, in order, under one attempt of one range."""

    def __init__(self, job: Job, manifest: RangeManifest, routing: Routing) -> None:
        self._job = job
        self._routing = routing
        self._manifest = manifest
        self._format = open_format(job.format, job.format_options)
        self._client = _clients.setdefault(
            job.delivery_socket, Client(Path(job.delivery_socket), timeout_seconds=_STAGE_SECONDS_MAX)
        )

    def take(self, change: ChangeBatch | SchemaChange) -> None:
        dispatcher, routing = self._dispatcher(change), self._routing
        if routing.only is not None and dispatcher not in routing.only:
            return
        resume = self._job.resume_of(dispatcher, routing.resume)
        if isinstance(change, ChangeBatch) and dispatcher in routing.held:
            self._hold(dispatcher, change, resume)
            return
        if isinstance(change, SchemaChange):
            seq, ts = Seq.from_bytes(change.seq), change.commit_ts
            if change.seq <= resume.progress:
                reached = Seq.from_bytes(resume.progress)
                if not change.table.parked or reached.position > self._manifest.end:
                    return
                # Another run read further. What stops the table lies after that: passed over, its rows would be lost.
                seq = reached._replace(row=reached.row + 1)
            text = forwarded(change, everything).to_json().encode()  # what the sink does not take is gone already
            needed = [table.to_json() for table in change.needed]
            self._stage(
                change,
                text,
                kind="ddl",
                epoch=resume.epoch,
                seqs=(seq, seq),
                times=(ts, ts),
                table_schema=json.dumps(needed) if needed else None,
            )
            return
        key = (self._job.format, change.table.schema, change.table.table)
        row_bytes = max(_row_bytes.get(key, _ROW_BYTES_FIRST_GUESS), self._format.row_bytes_min(change.table))
        rows_max = int(PAYLOAD_BYTES / row_bytes)
        schema = change.table.to_json()
        for piece, body in self._encoded(change, resume, rows_max):
            _row_bytes[key] = max(1.0, body.nbytes / len(piece))
            seqs = Seq.from_bytes(piece.seq[0].tobytes()), Seq.from_bytes(piece.seq[-1].tobytes())
            times = int(piece.commit_ts[0]), int(piece.commit_ts[-1])
            self._stage(
                change,
                body,
                kind="data",
                epoch=resume.epoch,
                seqs=seqs,
                times=times,
                rows=len(piece),
                table_schema=schema,
            )

    def _hold(self, dispatcher: str, batch: ChangeBatch, resume: Resume) -> None:
        """The rows stay in the log: the keeper must know that they are there, and nobody else."""
        first = rows_up_to(batch.seq, resume.progress)
        rows = self._delivered_up_to(batch.slice(first, len(batch)))
        if rows:
            before = self._manifest.held.get(dispatcher, {"rows": 0})["rows"]
            self._manifest.held[dispatcher] = {
                "seq": str(Seq.from_bytes(batch.seq[first + rows - 1].tobytes())),
                "schema": batch.table.schema,
                "table": batch.table.table,
                "rows": before + rows,
            }

    def _delivered_up_to(self, batch: ChangeBatch) -> int:
        """How many rows there are up to the last one that will be in a file. Dead letters after it never move progress: the
        keeper, and a DDL after them, would wait for them for ever. Looks at the end first, and at more while all is refused."""
        if self._job.poison != "dead-letter":
            return len(batch)
        look = 1
        while len(batch):
            tail = max(0, len(batch) - look)
            good = [
                part.rows for part in encode_parts(self._format, batch.slice(tail, len(batch))) if part.body is not None
            ]
            if good:
                last = good[-1].seq[-1].tobytes()
                return rows_up_to(batch.seq, last)
            batch, look = batch.slice(0, tail), 2 * look
        return 0

    def _encoded(self, change: ChangeBatch, resume: Resume, rows_max: int) -> Iterator[tuple[ChangeBatch, memoryview]]:
        """The payloads up to the end, or up to a poison row that parks the table at the sink."""
        for piece in split_into_payloads(change, resume, rows_max):
            parts = encode_parts(self._format, piece)
            while True:
                with self._manifest.timed("encode"):
                    part = next(parts, None)
                if part is None:
                    break
                if part.body is not None:
                    yield part.rows, memoryview(part.body).cast("B")
                elif not self._set_aside(part, resume):
                    return

    def _set_aside(self, part: Part, resume: Resume) -> bool:
        """A row that the format refuses: to the dead letters, or the table stops in front of it, by the sink's setting. False
        if it stops. A dead letter is at the sink before anything after its row can be published."""
        seq = Seq.from_bytes(part.rows.seq[0].tobytes())
        table = part.rows.table
        if self._job.poison == "dead-letter":
            self._client.call(
                "dead_letter",
                dead_letter(part),
                changefeed=self._job.changefeed,
                run=self._job.run,
                schema=table.schema,
                table=table.table,
                seq=str(seq),
            )
            return True
        stopped = replace(table, ddl_type=DdlType.UNKNOWN, query="", reason=f"the row at {seq}: {part.refused}")
        ts = int(part.rows.commit_ts[0])
        text = stopped.to_json().encode()
        self._stage(part.rows, text, kind="ddl", epoch=resume.epoch, seqs=(seq, seq), times=(ts, ts))
        return False

    def _dispatcher(self, change: ChangeBatch | SchemaChange) -> str:
        return dispatcher_id(self._job.changefeed, change.table.schema, change.table.table)

    def _stage(
        self,
        change: ChangeBatch | SchemaChange,
        body: bytes | memoryview,
        *,
        kind: str,
        epoch: int,
        seqs: tuple[Seq, Seq],
        times: tuple[int, int],
        rows: int = 0,
        table_schema: str | None = None,
    ) -> None:
        manifest = self._manifest
        with manifest.timed("stage"):
            self._client.call(
                "stage",
                body,
                changefeed=self._job.changefeed,
                run=self._job.run,
                start=str(manifest.start),
                end=str(manifest.end),
                attempt=manifest.attempt,
                ordinal=manifest.payloads,
                extra=manifest.extra,
                kind=kind,
                dispatcher=self._dispatcher(change),
                epoch=epoch,
                schema=change.table.schema,
                table=change.table.table,
                version=change.table.version,
                date=date_of(times[0]),
                first_seq=str(seqs[0]),
                last_seq=str(seqs[1]),
                first_commit_ts=times[0],
                last_commit_ts=times[1],
                rows=rows,
                table_schema=table_schema,
            )
        manifest.payloads += 1
        manifest.rows += rows
        manifest.bytes += len(body)

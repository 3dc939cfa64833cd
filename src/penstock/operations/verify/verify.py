"""Is every change at the sinks, once, and right?

Two independent comparisons. *With the log*: every change that the log holds, decoded and encoded again, against every
row in the files, matched by seq; this finds what was lost, doubled or altered on the way. *With the source*: the rows
that remain when a sink's changes are applied, against the rows that the source holds now, read without the binlog
decoder; this finds what was decoded wrongly. Nothing is changed, and a running flow is not disturbed: changes that are
still on their way are counted as pending.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from penstock.commit_ts import commit_ts_of
from penstock.delivery.storage.layout import DEAD_LETTERS
from penstock.delivery.storage.place import open_place
from penstock.encode import open_format
from penstock.errors import BadInput
from penstock.files import REAL_FILES
from penstock.log import LogReader
from penstock.log.position import Seq
from penstock.operations.config.model import Config
from penstock.operations.status import ask_run, delivered_through
from penstock.operations.verify.log_replay import LogReplay
from penstock.operations.verify.report import SinkReport, VerifyReport
from penstock.operations.verify.sink_tables import SinkTables
from penstock.operations.verify.source_comparison import Progress, compare_with_source
from penstock.rules.rules import Rules
from penstock.schema.parking import STOPPED_BY_RULES
from penstock.sources.settings import Tables


def verify(
    config: Config,
    *,
    sink: str | None = None,
    with_source: bool = True,
    progress: Progress = lambda _what, _done, _all: None,
) -> VerifyReport:
    """Compares every sink, or one. Raises only where nothing can be compared; a difference is in the report.

    `progress` is told what is compared now, and how much of how much of it is done.
    """
    if sink is not None and sink not in config.sinks:
        raise BadInput(f"there is no sink {sink!r}", hint=f"the configuration has {', '.join(config.sinks)}")
    directory = config.state_dir / "log"
    if not directory.exists():
        raise BadInput(f"{directory} does not exist: nothing was captured yet", hint="penstock run starts the flow")
    reader = LogReader.open(directory)
    names = [sink] if sink is not None else list(config.sinks)
    reports = [_verify_sink(config, name, reader, with_source, progress) for name in names]
    return VerifyReport(reports, running=ask_run(config.state_dir) is not None)


def _first_commit_ts(day: str) -> np.uint64:
    """The first commit_ts of a day; 0 for no day."""
    if not day:
        return np.uint64(0)
    return np.uint64(commit_ts_of(int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1000))


def _verify_sink(config: Config, name: str, reader: LogReader, with_source: bool, progress: Progress) -> SinkReport:
    settings = config.sinks[name]
    fmt = open_format(settings.format, settings.format_options)
    report = SinkReport(name)
    if settings.format == "csv":
        report.hold("not compared: csv has no place for the seq that rows are matched by (docs/formats/csv.md)")
        return report
    first = None if reader.complete else Seq(reader.first.ledger_id, max(0, reader.first.entry_id), 0, 0)
    tables = SinkTables(open_place(settings.url, REAL_FILES).objects, fmt, report, first, config.state_dir)
    through = delivered_through(config.state_dir, name, reader)
    filters = (config.source.tables, Tables(include=tuple(settings.only)))
    rules = Rules(config.rules_of(name), config.mask_key_of(name), lambda s, t: all(f.matches(s, t) for f in filters))
    replay = LogReplay(reader, filters, through, rules)
    refused: dict[str, int] = {}
    kept_from = _first_commit_ts(tables.expired_before)
    entries = replay.entries_count
    for whole, pending in replay.changes():
        expired = int(np.searchsorted(whole.commit_ts, kept_from))  # commit_ts only grows
        report.expired += expired
        batch = whole.slice(expired, len(whole))
        if len(batch):
            count = tables.expect(batch, may_be_pending=pending)
            if count:
                refused[batch.table.name] = refused.get(batch.table.name, 0) + count
        progress(f"{name} with the log", replay.entries_read, entries)
    tables.finish()
    _tell_held(report, replay, refused, poison=settings.poison)
    if first is not None:
        report.notes.append(
            f"the log was trimmed: {report.before_log:,} changes before {reader.first} were compared with the source alone"
        )
    if tables.expired_before:
        report.notes.append(
            f"files before {tables.expired_before} have expired: {report.expired:,} changes of the log, and the source, were not compared"
        )
    elif with_source:
        compare_with_source(config, fmt, tables, replay, report, progress=progress)
    if not report.differences.changes and not report.before_log:
        report.hold("nothing was compared: " + ("nothing is delivered yet" if report.differences.pending else "the log has no change that is at this sink"))  # fmt: skip
    return report


def _tell_held(report: SinkReport, replay: LogReplay, refused: dict[str, int], *, poison: str) -> None:
    """What the sink does not have because somebody must decide about it."""
    for table_name, count in refused.items():
        what = f"{table_name}: {count:,} rows that the format refuses"
        if poison == "dead-letter":
            report.notes.append(f"{what} are among the dead letters ({DEAD_LETTERS}), and not compared")
        else:
            report.hold(f"{what}: the table is held back there (sinks.{report.name}.poison)")
    for table in replay.parked.values():
        if table.reason.startswith(STOPPED_BY_RULES):
            report.hold(f"{table.name} is held back at the sink: {table.reason.removeprefix(STOPPED_BY_RULES)}")
            continue
        what = f"rows after {table.query[:120]!r}" if table.query else "its rows"
        report.hold(
            f"{table.name} is parked: {what} are held back in the log ({table.reason}) → penstock resume {table.name}"
        )

"""Is every change at the sinks, once, and right?

Two independent comparisons. *With the log*: every change that the log holds, decoded and encoded again, against every
row in the files, matched by seq; this finds what was lost, doubled or altered on the way. *With the source*: the rows
that remain when a sink's changes are applied, against the rows that the source holds now, read without the binlog
decoder; this finds what was decoded wrongly. Nothing is changed, and a running flow is not disturbed: changes that are
still on their way are counted as pending.

Spark starts only where a rule has `sql:`, for the rows of its tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime

import numpy as np

from penstock.changefeed.recovered import is_recovered
from penstock.commit_ts import commit_ts_of
from penstock.delivery.storage.checkpoint import checkpoint_of
from penstock.delivery.storage.expiry import expired_before
from penstock.delivery.storage.layout import DEAD_LETTERS, METADATA_PATH, layout_of
from penstock.delivery.storage.place import open_place
from penstock.encode import open_format
from penstock.errors import BadInput, Corruption
from penstock.files import REAL_FILES
from penstock.log import LogReader, Trimmed
from penstock.log.position import Seq
from penstock.objects import ObjectStore
from penstock.operations.config.model import Config, changefeed_settings
from penstock.operations.status import ask_run, delivered_through, dispatcher_facts, settings_versions
from penstock.operations.verify.companions import Companions
from penstock.operations.verify.log_replay import LogReplay
from penstock.operations.verify.report import SinkReport, VerifyReport
from penstock.operations.verify.sink_files import list_sink
from penstock.operations.verify.sink_tables import SinkTables
from penstock.operations.verify.source_comparison import Progress, compare_with_source
from penstock.rules.sql.rows import NO_SQL, Sql
from penstock.rules.versioned import VersionedRules
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion
from penstock.schema.changes import ChangeBatch
from penstock.schema.parking import ROWS_UNREADABLE, STOPPED_BY_RULES
from penstock.schema.quoting import shell_word
from penstock.spark.sql.local import LocalSql
from penstock.supervisor.run_directory import refuse_unfinished_recovery
from penstock.supervisor.status import RunStatus

_TRIMS_MAX = 5  # how often a comparison begins again because the log was trimmed under it


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
    refuse_unfinished_recovery(config.state_dir, REAL_FILES)
    names = [sink] if sink is not None else list(config.sinks)
    with closing(LogReader.open(directory)) as reader, closing(LocalSql(config.state_dir)) as sql:
        reports = [_verify_sink(config, name, reader, with_source, progress, sql=sql) for name in names]
    run = ask_run(config.state_dir)
    if run is not None:
        for report in reports:
            _hold_what_stands_still(report, run)
    return VerifyReport(reports, running=run is not None)


def _hold_what_stands_still(report: SinkReport, run: RunStatus) -> None:
    """What is not delivered, and does not come by waiting either: somebody has to let it go on."""
    pending = report.differences.pending
    feed = next((one for one in run.changefeeds if one.name == report.name), None)
    if feed is None or not pending:
        return
    if feed.paused_ms is not None:
        report.hold(f"the sink is paused: {pending:,} changes are held back in the log → penstock resume {feed.name}")
    elif feed.state == "failed":
        report.hold(f"the sink stands still: {pending:,} changes are held back in the log ({feed.note})")
    for one in feed.paused_tables if feed.paused_ms is None else ():
        if one.held_rows != 0:  # None: nobody says
            report.hold(f"{one.table} is paused: its rows are held back in the log → {one.command}")


def _first_commit_ts(day: str) -> np.uint64:
    """The first commit_ts of a day; 0 for no day."""
    if not day:
        return np.uint64(0)
    return np.uint64(commit_ts_of(int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1000))


def _verify_sink(
    config: Config, name: str, reader: LogReader, with_source: bool, progress: Progress, *, sql: Sql
) -> SinkReport:
    for _ in range(_TRIMS_MAX):
        try:
            return _compare_sink(config, name, reader, with_source, progress, sql=sql)
        except Trimmed:  # a flow that runs deletes what every sink has: again, from where the log begins now
            reader.refresh()
    return _compare_sink(config, name, reader, with_source, progress, sql=sql)


def _compare_sink(
    config: Config, name: str, reader: LogReader, with_source: bool, progress: Progress, *, sql: Sql
) -> SinkReport:
    """The order matters, while a flow runs: first how far it is, then its files, then the log. So a file has nothing that
    the log does not have, and what the cursor has passed is in the files."""
    settings = config.sinks[name]
    fmt = open_format(settings.format, settings.format_options)
    report = SinkReport(name)
    if settings.format == "csv":
        report.hold("not compared: csv has no place for the seq that rows are matched by (docs/formats/csv.md)")
        return report
    through = delivered_through(config.state_dir, name, reader)
    facts = dispatcher_facts(config.state_dir, name)
    objects = open_place(settings.url, REAL_FILES).objects
    promised = checkpoint = _promised(objects, report)
    gone_before = expired_before(objects)
    moving = ask_run(config.state_dir) is not None
    found = list_sink(objects, moving=moving)
    tables = SinkTables(objects, fmt, found, report, config.state_dir, gone_before)
    companions = Companions(objects, layout_of(settings.format), found, report, gone_before)
    companions.check_recorded(facts)
    replay = LogReplay(reader, through, rules_at_sink(config, name, sql))
    trimmed = not reader.complete
    recovered = {(one.schema, one.table): one.recovered for one in facts if one.recovered is not None}
    if trimmed or is_recovered(replay.first):
        tables.begin_at(Seq(replay.first.ledger_id, max(0, replay.first.entry_id), 0, 0))
    if is_recovered(replay.first):
        promised = np.uint64(0)  # of the log that was lost
    for target, until in replay.unknown_masks().items():
        tables.begin_table_at(target, until)
        report.hold(f"{'.'.join(target)}: rows before {until} were masked by another mask_key, and not compared")
    for target, seq in recovered.items():
        tables.begin_table_at(target, seq._replace(row=seq.row + 1))
    refused: dict[str, int] = {}
    kept_from = _first_commit_ts(gone_before)
    entries = replay.entries_count
    delivered = np.uint64(0)  # the commit_ts of the last change
    for whole, pending in replay.changes():
        expired = int(np.searchsorted(whole.commit_ts, kept_from))  # commit_ts only grows
        report.expired += expired
        batch = _after(whole.slice(expired, len(whole)), recovered)
        if len(batch) and not pending:
            delivered = max(delivered, batch.commit_ts[-1])
        due = int(np.searchsorted(batch.commit_ts, promised, side="right")) if pending else len(batch)
        for part, may_be_pending in ((batch.slice(0, due), False), (batch.slice(due, len(batch)), True)):
            if not len(part):
                continue
            companions.check_version(part.table)
            without = tables.expect(part, may_be_pending=may_be_pending)
            if without:
                refused[part.table.name] = refused.get(part.table.name, 0) + len(without)
            for seq in without if settings.poison == "dead-letter" and not may_be_pending else ():
                companions.check_dead_letter(part.table, seq)
        progress(f"{name} with the log", replay.entries_read, entries)
    # Statements of before a recovery are at the sink under versions of the log that was lost.
    known = max(recovered.values(), default=None)
    for seq, table in replay.statements:
        if known is None or seq > known:
            companions.check_statement(table)
    companions.check_others()
    tables.finish()
    for target, seq in recovered.items():
        replay.lineage.recovered(target, seq.to_bytes())
    _tell_held(report, replay, refused, poison=settings.poison)
    if delivered > checkpoint and not moving:
        report.hold(
            f"readers do not see everything that is here: the checkpoint ({METADATA_PATH}) is {checkpoint}, and the last change "
            f"{delivered} → penstock run writes it"
        )
    if gone_before:
        report.notes.append(
            f"files before {gone_before} have expired: {report.expired:,} changes of the log, and the source, were not compared"
        )
    elif with_source:
        compare_with_source(config, fmt, tables, replay, report, progress=progress)
        if is_recovered(replay.first):
            _hold_untouched(report)
    _tell_what_was_not(report, replay, trimmed=trimmed, expired=bool(gone_before))
    return report


def _tell_what_was_not(report: SinkReport, replay: LogReplay, *, trimmed: bool, expired: bool) -> None:
    """What could not be compared with the log, and whether nothing could be."""
    how = "compared with the source alone" if report.compared_with_source else "not compared"
    if trimmed:
        report.notes.append(f"the log was trimmed: {report.before_log:,} changes before {replay.first} were {how}")
    elif is_recovered(replay.first):
        report.notes.append(
            f"the flow was recovered from this sink: {report.before_log:,} changes of before that were {how}"
        )
    told = report.source_error or expired  # why there is nothing to compare them with
    if not report.differences.changes and not (report.before_log and (report.compared_with_source or told)):
        report.hold("nothing was compared: " + ("nothing is delivered yet" if report.differences.pending else "the log has no change that is at this sink"))  # fmt: skip


def _promised(objects: ObjectStore, report: SinkReport) -> np.uint64:
    """The commit_ts up to which the sink says that everything is there."""
    try:
        return np.uint64(checkpoint_of(objects.read(METADATA_PATH)))
    except Corruption as error:
        report.fault(error.message)
        return np.uint64(0)


def _hold_untouched(report: SinkReport) -> None:
    """Tables of before a recovery that did not change since: the log knows nothing of them to compare by."""
    names = [
        one.name
        for one in report.tables.values()
        if one.with_source is None and not (one.note or one.differences.changes)
    ]
    if names and not report.source_error:
        report.hold(f"not compared, because nothing changed since the flow was recovered: {', '.join(sorted(names))}")


def _after(batch: ChangeBatch, recovered: Mapping[tuple[str, str], Seq]) -> ChangeBatch:
    """Without the changes that the sink has from before a recovery: under seqs of a log that was lost."""
    seq = recovered.get((batch.table.schema, batch.table.table))
    if seq is None:
        return batch
    there = int(np.searchsorted(batch.seq.view("S24").ravel(), np.bytes_(seq.to_bytes()), side="right"))
    return batch.slice(there, len(batch))


def rules_at_sink(config: Config, name: str, sql: Sql = NO_SQL) -> VersionedRules:
    """By what the rows at the sink were shaped: what a run recorded, whatever the configuration says now."""
    key = config.mask_key.reveal() if config.mask_key is not None else None
    versions = settings_versions(config.state_dir, name)
    if not versions:
        versions = (SettingsVersion(BEGINNING, 0, RowSettings.of(changefeed_settings(config, name), key)),)
    return VersionedRules(versions, key, sql)


def _tell_held(report: SinkReport, replay: LogReplay, refused: dict[str, int], *, poison: str) -> None:
    """What the sink does not have because somebody must decide about it."""
    for table_name, count in refused.items():
        what = f"{table_name}: {count:,} rows that the format refuses"
        if poison == "dead-letter":
            report.notes.append(f"{what} are among the dead letters ({DEAD_LETTERS}), and not compared")
        else:
            report.hold(f"{what}: the table is held back there (sinks.{report.name}.poison)")
    for key, load in replay.loads.items():
        if not load.done and key in replay.latest:
            report.loading.append(
                f"{'.'.join(key)}: its initial load has {load.rows:,} of about {load.estimate:,} rows; it was compared with the "
                "log only"
            )
    for table in replay.parked.values():
        if table.reason.startswith(STOPPED_BY_RULES):
            report.hold(f"{table.name} is held back at the sink: {table.reason.removeprefix(STOPPED_BY_RULES)}")
            continue
        if table.reason.startswith(ROWS_UNREADABLE):
            report.hold(f"{table.name} is held back at the sink: {table.reason}")
            continue
        what = f"rows after {table.query[:120]!r}" if table.query else "its rows"
        report.hold(
            f"{table.name} is parked: {what} are held back in the log ({table.reason}) → penstock resume {shell_word(table.name)}"
        )

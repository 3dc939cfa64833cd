"""Is every change at the sinks, once, and right?

Two independent comparisons. *With the log*: every change that the log holds, decoded and encoded again, against every
row in the files, matched by seq; this finds what was lost, doubled or altered on the way. *With the source*: the rows
that remain when a sink's changes are applied, against the rows that the source holds now, read without the binlog
decoder; this finds what was decoded wrongly. Nothing is changed, and a running flow is not disturbed: changes that are
still on their way are counted as pending.
"""

from __future__ import annotations

from penstock.delivery.settings import local_directory
from penstock.encode import FORMATS
from penstock.errors import BadInput
from penstock.log import LogReader
from penstock.log.position import Seq
from penstock.operations.config.model import Config
from penstock.operations.status import ask_run, delivered_through
from penstock.operations.verify.log_replay import LogReplay
from penstock.operations.verify.report import SinkReport, VerifyReport
from penstock.operations.verify.sink_tables import SinkTables
from penstock.operations.verify.source_comparison import compare_with_source
from penstock.sources.settings import Tables


def verify(config: Config, *, sink: str | None = None, with_source: bool = True) -> VerifyReport:
    """Compares every sink, or one. Raises only where nothing can be compared; a difference is in the report."""
    if sink is not None and sink not in config.sinks:
        raise BadInput(f"there is no sink {sink!r}", hint=f"the configuration has {', '.join(config.sinks)}")
    directory = config.state_dir / "log"
    if not directory.exists():
        raise BadInput(f"{directory} does not exist: nothing was captured yet", hint="penstock run starts the flow")
    reader = LogReader.open(directory)
    names = [sink] if sink is not None else list(config.sinks)
    reports = [_verify_sink(config, name, reader, with_source) for name in names]
    return VerifyReport(reports, running=ask_run(config.state_dir) is not None)


def _verify_sink(config: Config, name: str, reader: LogReader, with_source: bool) -> SinkReport:
    settings = config.sinks[name]
    fmt = FORMATS[settings.format]
    report = SinkReport(name)
    first = None if reader.complete else Seq(reader.first.ledger_id, max(0, reader.first.entry_id), 0, 0)
    tables = SinkTables(local_directory(settings.url), fmt, report, first)
    through = delivered_through(config.state_dir, name, reader)
    replay = LogReplay(reader, (config.source.tables, Tables(include=tuple(settings.only))), through)
    for batch, pending in replay.changes():
        expected = fmt.rows(fmt.assemble([fmt.encode(batch)]))
        tables.of((batch.table.schema, batch.table.table)).expect(expected, may_be_pending=pending)
    tables.finish()
    if first is not None:
        report.notes.append(
            f"the log was trimmed: {report.before_log:,} changes before {reader.first} were compared with the source alone"
        )
    if with_source:
        compare_with_source(config, fmt, tables, replay.latest, report)
    return report

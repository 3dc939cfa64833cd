"""Makes the plan: (1) the tables of the source; (2) what each pattern takes; (3) what would be loaded, how long it takes and what
disk it needs; (4) where files would be; (5) what changes for a flow that is there already.

Starts nothing and changes nothing; needs neither Spark nor Java.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from penstock.delivery.settings import is_local, local_directory
from penstock.delivery.spool.limits import QUOTA_BYTES
from penstock.delivery.storage.layout import layout_of
from penstock.operations.config.model import Config, Places
from penstock.operations.forget import left_sinks
from penstock.operations.plan.chosen_tables import SourceTable, look_at_tables, unreadable_tables
from penstock.operations.plan.differences import differences
from penstock.operations.plan.flow_facts import FlowFacts, read_flow
from penstock.operations.plan.model import (
    Plan,
    PlannedDisk,
    PlannedGlob,
    PlannedLoad,
    PlannedSink,
    PlannedTable,
    Problem,
)
from penstock.operations.plan.record import read_record, recorded_settings
from penstock.operations.status import ask_run
from penstock.patterns import matches
from penstock.process import EXIT_CONFIGURATION, EXIT_SOURCE
from penstock.rules.routes import routed
from penstock.secret import harmless
from penstock.sources.settings import ServerSettings, Tables
from penstock.sources.source import SourceError

# Assumed, not measured at this server: `--rate` says better.
ROWS_PER_SECOND = 100_000
BYTES_PER_SECOND = 32 << 20
LOG_BYTES_PER_ROW = 64  # of the log beside a row's own values: positions, lengths, its share of a frame
_NAMED_MAX = 5
_KEYLESS = "it has no primary key"


def make_plan(config: Config, rows_per_second: int | None = None) -> Plan:
    """Raises `SourceError` or `Unavailable` where the source cannot be asked."""
    seen, flow = look_at_tables(config), read_flow(config.state_dir)
    running = flow is not None and ask_run(config.state_dir) is not None
    chosen = [one for one in seen.all or () if config.source.tables.matches(one.schema, one.table)]
    refused = _refused(config, [one for one in chosen if _is_wanted(config, one, flow)])
    tables = tuple(_planned(config, one, flow, refused) for one in chosen)
    globs = _globs(config, chosen) if seen.all is not None else ()
    load = _load(config, [one for one in tables if one.load], rows_per_second)
    before = read_record(config.state_dir) if flow is not None else None
    changed = None
    if flow is not None and before is not None and seen.all is not None:
        changed = differences(before, recorded_settings(config), tables, seen.all, flow)
    notes = []
    if flow is not None and before is None:
        notes.append("nobody wrote down what this flow was started with, so nothing is compared; its next start does")
    if seen.all is None:
        notes.append("this source does not say which tables it has")
    places = Places(state_dir=config.state_dir, sinks=tuple(config.sinks))
    for left in left_sinks(places):
        notes.append(
            f"{left.name} is not in the configuration, and the log is kept for it from {left.mark_delete or 'its end'} on: put it "
            f"back, or → penstock forget {left.name}"
        )
    return Plan(
        source=seen.source,
        flow="new" if flow is None else "running" if running else "stopped",
        start=str(getattr(config.source, "start", "the beginning")),
        globs=globs,
        tables=tables if seen.all is not None else None,
        load=load,
        disk=_disk(config, load),
        sinks=tuple(_sink(config, name, tables, known=seen.all is not None) for name in config.sinks),
        differences=changed,
        problems=(*_problems(config, globs, tables, seen.all), *_purged(config, flow)),
        notes=(*notes, *_notes(config, tables, seen.all)),
    )


def _planned(config: Config, one: SourceTable, flow: FlowFacts | None, refused: Mapping[str, str]) -> PlannedTable:
    """`refused`: why tables that are to be loaded cannot be."""
    include = config.source.tables.include
    return PlannedTable(
        table=one.name,
        globs=tuple(glob for glob in include if matches(one.name, glob)),
        rows=one.rows,
        bytes=one.bytes,
        primary_key=one.primary_key,
        load=one.name not in refused and _is_wanted(config, one, flow),
        refused=refused.get(one.name, ""),
        paths={name: _path(config, name, one.schema, one.table) for name in config.sinks if _takes(config, name, one)},
    )


def _is_wanted(config: Config, one: SourceTable, flow: FlowFacts | None) -> bool:
    """Whether the next start is to load the table's rows."""
    source = config.source
    scope = source.load_scope if isinstance(source, ServerSettings) else None
    if scope is None:
        return False
    if flow is None:
        return scope.matches(one.schema, one.table)
    return flow.is_chosen_later(one.schema, one.table, scope)


def _refused(config: Config, wanted: Sequence[SourceTable]) -> dict[str, str]:
    """Why some of these tables cannot be loaded."""
    if not wanted or not isinstance(config.source, ServerSettings):
        return {}
    bare = {one.name: _KEYLESS for one in wanted if not one.primary_key}
    return bare | unreadable_tables(config.source, wanted)


def _takes(config: Config, sink: str, one: SourceTable) -> bool:
    return Tables(include=tuple(config.sinks[sink].only)).matches(one.schema, one.table)


def _path(config: Config, sink: str, schema: str, table: str) -> str:
    settings = config.sinks[sink]
    name = f"{schema}.{table}"
    routes = [rule.route for rule in config.rules_of(sink) if rule.route and matches(name, rule.table)]
    target = routed(routes[-1], (schema, table)) if routes else (schema, table)
    url = str(local_directory(settings.url)) if is_local(settings.url) else harmless(settings.url)
    return f"{url.rstrip('/')}/{layout_of(settings.format).table_directory(*target)}"


def _globs(config: Config, chosen: Sequence[SourceTable]) -> tuple[PlannedGlob, ...]:
    found = [_glob("source.tables.include", glob, chosen) for glob in config.source.tables.include]
    for name, sink in config.sinks.items():
        if sink.only != ["*.*"]:
            found += [_glob(f"sinks.{name}.only", glob, chosen) for glob in sink.only]
    return tuple(found)


def _glob(key: str, glob: str, chosen: Sequence[SourceTable]) -> PlannedGlob:
    taken = [one for one in chosen if matches(one.name, glob)]
    known = all(one.rows is not None for one in taken)
    return PlannedGlob(
        key=key,
        glob=glob,
        tables=len(taken),
        rows=sum(one.rows or 0 for one in taken) if known else None,
        bytes=sum(one.bytes or 0 for one in taken) if known else None,
    )


def _load(config: Config, tables: Sequence[PlannedTable], stated: int | None) -> PlannedLoad | None:
    if not tables or not isinstance(config.source, ServerSettings):
        return None
    rows, size = sum(one.rows or 0 for one in tables), sum(one.bytes or 0 for one in tables)
    limit = config.source.snapshot.max_rows_per_second
    rate, where = (stated, "--rate") if stated is not None else (ROWS_PER_SECOND, "assumed; --rate states another")
    if limit and limit < rate:
        rate, where = limit, "source.snapshot.max_rows_per_second"
    seconds = rows / rate
    if stated is None:
        seconds = max(seconds, size / BYTES_PER_SECOND)
    return PlannedLoad(
        tables=len(tables), rows=rows, bytes=size, rows_per_second=rate, stated=where, seconds=round(seconds, 1)
    )


def _disk(config: Config, load: PlannedLoad | None) -> PlannedDisk:
    limits = config.limits
    spool = limits.spool_disk if limits.spool_disk is not None else QUOTA_BYTES
    above = config.state_dir
    while not above.exists():
        above = above.parent
    return PlannedDisk(
        log_bytes=load.bytes + load.rows * LOG_BYTES_PER_ROW if load is not None else 0,
        log_bytes_max=limits.log_disk,
        spool_bytes=spool * len(config.sinks),
        free_bytes=shutil.disk_usage(above).free,
    )


def _sink(config: Config, name: str, tables: Sequence[PlannedTable], *, known: bool) -> PlannedSink:
    settings = config.sinks[name]
    layout = layout_of(settings.format)
    taken = [one for one in tables if name in one.paths]
    where = taken[0].paths[name] if taken else _path(config, name, "schema", "table")
    data = f"{where}/{layout.version_prefix}N/{layout.date_prefix}YYYY-MM-DD"
    url = settings.url if is_local(settings.url) else harmless(settings.url)
    return PlannedSink(
        name=name,
        format=settings.format,
        url=str(Path(url)) if is_local(url) and "://" not in url else url,
        tables=len(taken) if known else 0,
        example=layout.data_path(data, 1),
    )


def _problems(
    config: Config,
    globs: Sequence[PlannedGlob],
    tables: Sequence[PlannedTable],
    at_source: Sequence[SourceTable] | None,
) -> list[Problem]:
    found = []
    names = [one.name for one in at_source or ()]
    for glob in (one for one in globs if not one.tables):
        excluded = any(matches(name, glob.glob) for name in names)
        why = "takes only tables that are left out by others" if excluded else "matches no table that this user may see"
        hint = f"take it out of {glob.key}, or look at the table's name and at the user's grants"
        if excluded:
            hint = f"take it out of {glob.key}, or look at source.tables"
        found.append(Problem(message=f"{glob.key}: {glob.glob} {why}", hint=hint, exit_code=EXIT_CONFIGURATION))
    bare = [one.table for one in tables if one.refused == _KEYLESS]
    if bare:
        found.append(_not_loaded(bare, "no primary key", "add a primary key, or "))
    for one in tables:
        if one.refused and one.refused != _KEYLESS:
            found.append(_not_loaded([one.table], one.refused))
    return found


def _not_loaded(names: Sequence[str], why: str, mend: str = "") -> Problem:
    exclude = ", ".join(f'"{name}"' for name in names[:_NAMED_MAX])
    return Problem(
        message=f"{_listed(names)} cannot be loaded: {why}",
        hint=f"{mend}leave it out of the load: source.snapshot.tables: {{exclude: [{exclude}]}}",
        exit_code=EXIT_SOURCE,
    )


def _purged(config: Config, flow: FlowFacts | None) -> list[Problem]:
    """Whether the server still has what a flow that is there would read on from."""
    if flow is None or flow.position is None or not isinstance(config.source, ServerSettings):
        return []
    from penstock.sources.mysql.source import ServerSource

    try:
        with closing(ServerSource(config.source, config.state_dir)) as source:
            source.check(flow.position)
    except SourceError as error:
        return [Problem(message=error.message, hint=error.hint, exit_code=EXIT_SOURCE)]
    return []


def _notes(config: Config, tables: Sequence[PlannedTable], at_source: Sequence[SourceTable] | None) -> list[str]:
    found = []
    bare = [one.table for one in tables if one.primary_key is False and not one.refused]
    if bare:
        found.append(f"no primary key, so no load, and verify compares with the log alone: {_listed(bare)}")
    alone = [one.table for one in tables if not one.paths]
    if alone:
        found.append(f"captured and at no sink: {_listed(alone)}")
    for sink in config.sinks:
        together: dict[str, list[str]] = {}
        for one in tables:
            if sink in one.paths:
                together.setdefault(one.paths[sink], []).append(one.table)
        for path, same in together.items():
            if len(same) > 1:
                found.append(f"one table at {sink}, {path}: {_listed(same)}")
    for glob in config.source.tables.exclude:
        if at_source is not None and not any(matches(one.name, glob) for one in at_source):
            found.append(f"source.tables.exclude: {glob} leaves nothing out")
    return found


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}"

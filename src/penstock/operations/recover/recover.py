"""A new state directory from what the sinks say of themselves: the steps of docs/formats/progress-object.md, *Recovery*.

Until the last step nothing but the owner objects, and leftovers that no index names, is changed at a sink; what a recovery that
was cut has made in the state directory is removed by the next one.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.capture.beginning import begin_log
from penstock.capture.log_config import LogConfig
from penstock.capture.loop import Capture
from penstock.capture.process import CaptureSettings, make_source
from penstock.capture.room import Room
from penstock.changefeed.recovered import first_ledger_after, write_recovered
from penstock.clock import SYSTEM_CLOCK
from penstock.delivery.storage.owner import adopt
from penstock.errors import BadInput, Unavailable
from penstock.files import REAL_FILES, Files
from penstock.files.private import clear_private
from penstock.files.seam import replace_file
from penstock.log import Log, LogReader
from penstock.log.position import Position, Seq
from penstock.operations.config.model import Config
from penstock.operations.recover.contents import Contents, Name, read_contents
from penstock.operations.recover.matching import Matching, find_bound
from penstock.operations.recover.points import SinkPoint, oldest, read_points
from penstock.operations.verify.log_replay import read_history
from penstock.process import Event
from penstock.rules.versioned import VersionedRules
from penstock.rules.versions import BEGINNING, SettingsVersion
from penstock.schema.model import TableSchema
from penstock.sources.position import SourcePosition
from penstock.sources.settings import Tables
from penstock.sources.source import Beginning, Chunk, Source
from penstock.spark.sql.local import LocalSql
from penstock.supervisor.run_directory import RECOVERY_MARK, secure_state_directory

Say = Callable[[str], None]
_MADE = ("log", "progress", "cursors")
_METADATA = "metadata.sqlite"


@dataclass(frozen=True, slots=True)
class Recovered:
    """`position`: where the new log begins. `kept`: changes beyond their points that the sinks have already, by sink.
    `doubled`: what comes again, in words; empty unless that was accepted."""

    position: SourcePosition
    kept: dict[str, int]
    leftovers: dict[str, int]
    doubled: tuple[str, ...] = ()


def recover_from_sinks(
    config: Config,
    *,
    accept_doubled: bool = False,
    say: Say = lambda _line: None,
    stop: threading.Event | None = None,
    files: Files = REAL_FILES,
) -> Recovered:
    """Makes the state directory anew. Raises `BadInput` where a sink has no point, where the state directory is not lost, and,
    unless `accept_doubled`, where something would be doubled: it says what. Nothing was skipped then."""
    state_dir = config.state_dir
    secure_state_directory(state_dir)
    with files.lock(state_dir / "lock"):
        marked = files.exists(state_dir / RECOVERY_MARK)
        if not marked and any(files.exists(state_dir / name) for name in (_METADATA, *_MADE)):
            raise BadInput(
                f"{state_dir} is not lost: it holds a log",
                hint="penstock run goes on there; --recover-from-sink is for an empty state_dir",
            )
        sinks = read_points(config)
        first = oldest(sinks)
        _refuse(_doubled_loads(sinks, first, _look(sinks)), accept_doubled)
        mark = {"version": 1, "begun_ms": SYSTEM_CLOCK.wall_ms()}
        replace_file(files, state_dir / RECOVERY_MARK, [json.dumps(mark).encode() + b"\n"])
        _remove_made(state_dir)
        for sink in sinks:
            adopt(
                sink.place,
                SYSTEM_CLOCK,
                changefeed=sink.name,
                log_uuid=None,
                format_name=sink.format_identity,
                goes_on=True,
            )
        contents = _look(sinks)  # again: nobody else writes there now
        doubled = _doubled_loads(sinks, first, contents)
        _refuse(doubled, accept_doubled)
        say(f"reading the source again from {first.point.position}")
        _fill_log(config, sinks, first, contents, stop or threading.Event())
        progress, wrong = _match(config, sinks, first, contents)
        doubled += wrong
        _refuse(doubled, accept_doubled)
        for sink in sinks:
            sink.place.objects.delete(contents[sink.name].leftovers)
            write_recovered(
                state_dir,
                sink.name,
                progress=progress[sink.name],
                checkpoint_ts=sink.point.commit_ts,
                settings=sink.settings,
                files=files,
            )
        files.remove(state_dir / RECOVERY_MARK)
        files.sync_directory(state_dir)
    return Recovered(
        first.point.position,
        {name: found.beyond for name, found in contents.items()},
        {name: len(found.leftovers) for name, found in contents.items()},
        tuple(doubled),
    )


def _look(sinks: list[SinkPoint]) -> dict[str, Contents]:
    return {one.name: read_contents(one.place.objects, one.layout, one.format, one.point) for one in sinks}


def _doubled_loads(sinks: list[SinkPoint], first: SinkPoint, contents: dict[str, Contents]) -> list[str]:
    """What cannot be told from the files alone, in words."""
    found = []
    for sink in sinks:
        for name, table in contents[sink.name].tables.items():
            if table.loaded:
                found.append(
                    f"{sink.name}: {'.'.join(name)}: {table.loaded:,} rows of a load that were written after {sink.point.position}: "
                    "a load that had begun by then goes on from there and writes them again, any other must be asked for again "
                    "(penstock backfill)"
                )
            if table.untold:
                found.append(
                    f"{sink.name}: {'.'.join(name)}: every change after {sink.point.position}: its csv has no commit_ts"
                )
        if (sink.point.loads, sink.point.scope) != (first.point.loads, first.point.scope):
            names = sorted({".".join(name) for name in {**sink.point.loads, **first.point.loads}})
            found.append(
                f"{sink.name}: rows that were loaded between {first.point.position} and {sink.point.position} "
                f"({', '.join(names) or 'tables that were chosen since'})"
            )
        elif sink.format.name == "csv" and sink.point.loads:
            names = sorted(".".join(name) for name in sink.point.loads)
            found.append(
                f"{sink.name}: rows of the loads of {', '.join(names)}: in csv they cannot be told from others"
            )
    return found


def _refuse(doubled: list[str], accept: bool) -> None:
    if doubled and not accept:
        raise BadInput(
            "the sink would get some rows twice: " + "; ".join(doubled),
            hint="penstock run --recover-from-sink --accept-doubled goes on all the same; readers that merge by key and _seq "
            "see no difference. Nothing was written",
        )


def _remove_made(state_dir: Path) -> None:
    """What an earlier recovery made, and did not finish."""
    for name in _MADE:
        clear_private(state_dir / name)
        with contextlib.suppress(FileNotFoundError):
            (state_dir / name).rmdir()
    for name in (_METADATA, f"{_METADATA}-wal", f"{_METADATA}-shm"):
        (state_dir / name).unlink(missing_ok=True)


def _fill_log(
    config: Config, sinks: list[SinkPoint], first: SinkPoint, contents: dict[str, Contents], stop: threading.Event
) -> None:
    """Makes the log, and reads the source up to where it is now: whatever a sink has is in it then."""
    newest = max(*(sink.newest for sink in sinks), *(found.newest for found in contents.values())) + 1
    ledgers = [found.newest_ledger for found in contents.values()]
    ledgers += [max(sink.point.log_position, sink.point.log_end).ledger_id for sink in sinks]
    schemas = _schemas(sinks, first)
    if any(sink.point.settings_versions > 1 for sink in sinks):
        # Tables may be at a sink under versions that settings gave them: larger than their own.
        schemas = tuple(replace(table, version=newest) for table in schemas)
    begun = Beginning(replace(first.point.position, commit_ts=newest), schemas, first.point.loads)
    tables = _without_joining(config.source.tables, first)
    log_settings = replace(
        LogConfig.model_validate(config.log.model_dump(mode="json", by_alias=True)).settings(config.limits.log_disk),
        first_ledger=first_ledger_after(max(ledgers)),
    )
    directory = config.state_dir / "log"
    log = Log.open(directory, log_settings)
    try:
        begin_log(log, begun, tables=tables, scope=first.point.scope)
    finally:
        log.close()
    source = make_source(CaptureSettings(state_dir=config.state_dir, source=config.source))
    log = Log.open(directory, log_settings)
    lack: list[str] = []

    def report(event: dict[str, Any]) -> None:
        if event.get("event") == Event.PROGRESS and event.get("paused"):
            lack.append(str(event["paused"]))
            stop.set()

    try:
        room = Room(log, directory, log_bytes_max=config.limits.log_disk, free_bytes_min=config.limits.disk_free)
        capture = Capture(
            log,
            _StreamOnly(source, beyond=any(found.beyond for found in contents.values())),
            tables=tables,
            stop=stop,
            report=report,
            room=room,
            state_settings=config.state.settings(),
        )
        reached = capture.run(until_now=True)
    finally:
        source.close()
        log.close()
    if lack:
        raise Unavailable(
            f"there is no room for what the source has since {first.point.position}: {lack[0]}",
            hint="raise limits.log_disk, or make room on the disk, and start the recovery again",
        )
    if not reached:
        raise Unavailable("stopped before the source was read again", hint="start the recovery again")


def _schemas(sinks: list[SinkPoint], first: SinkPoint) -> tuple[TableSchema, ...]:
    """The tables at the oldest point, and those that were gone by then, of which one sink may need to know and another not."""
    found = {(one.schema, one.table): one for one in first.schemas()}
    for sink in sinks:
        for one in sink.schemas() if sink is not first else ():
            if one.dropped and one.version <= first.point.commit_ts:
                found.setdefault((one.schema, one.table), one)
    return tuple(found.values())


def _without_joining(tables: Tables, first: SinkPoint) -> Tables:
    """Tables whose load was to begin are followed from there on, not from here."""
    joining = [".".join(name) for name, load in first.point.loads.items() if load.joins and not load.key]
    return tables.model_copy(update={"exclude": (*tables.exclude, *joining)})


def _match(
    config: Config, sinks: list[SinkPoint], first: SinkPoint, contents: dict[str, Contents]
) -> tuple[dict[str, dict[Name, Seq]], list[str]]:
    key = config.mask_key.reveal() if config.mask_key is not None else None
    progress: dict[str, dict[Name, Seq]] = {}
    wrong: list[str] = []
    with (
        contextlib.closing(LogReader.open(config.state_dir / "log")) as reader,
        contextlib.closing(LocalSql(config.state_dir)) as sql,
    ):
        history = read_history(reader)
        for sink in sinks:
            rules = VersionedRules((SettingsVersion(BEGINNING, 0, sink.settings),), key, sql).at(Position(0, 0))
            later = sink.point.position != first.point.position
            bound = find_bound(reader, history, sink.point.position) if later else None
            matching = Matching(rules, sink.format, contents[sink.name], bound, refuses=sink.refuses)
            found = matching.match(reader, history)
            progress[sink.name] = found.progress
            wrong += [f"{sink.name}: {one}" for one in found.wrong]
    return progress, wrong


class _StreamOnly:
    """A source whose tables are not loaded: rows of a load among those that the sinks have would be taken for delivered. `beyond`:
    a sink has something beyond its point, which is found by the order of the source."""

    lower_case_table_names = 0

    def __init__(self, source: Source, *, beyond: bool) -> None:
        self._source = source
        self._beyond = beyond

    def begin(self, version: int) -> Beginning:
        return self._source.begin(version)

    def resume(self, position: SourcePosition) -> SourcePosition:
        """Another server has the same transactions, but maybe not in the same order. The same one has one order, by whatever it is
        asked: what it leaves out by GTID is what was read."""
        found = self._source.resume(position)
        self.lower_case_table_names = self._source.lower_case_table_names
        if self._beyond and found.source != position.source:
            raise BadInput(
                f"the sinks are at {position} of {position.source}, and this is {found.source}: what they have beyond that place "
                "cannot be found there by order",
                hint="recover from the server that was read, or start anew with a new state_dir and a new url of each sink",
            )
        return found

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        return self._source.open(position)

    def end(self) -> SourcePosition:
        return self._source.end()

    def close(self) -> None:
        self._source.close()

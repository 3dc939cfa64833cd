"""Follows the changes in a flow's log, without a cursor: the flow does not know that somebody looks.

Whole transactions only: reading begins after one, and what is shown ends with one. The order is the log's; a transaction
of more than `SORTED_ROWS_MAX` rows may come table by table. The log is not kept for a reader like this: where it was trimmed
meanwhile, the tail goes on at what is left, and says so.

Rules for every sink always hold, so that nobody reads here what a mask hides; those of one sink hold besides, if one is named.
What they hold back since before the tail's beginning is held back here too (`hidden.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.entries.decode import decode_entries
from penstock.errors import BadInput, Unavailable
from penstock.log import LogReader, Position
from penstock.log.position import Seq
from penstock.log.read.reader import Trimmed
from penstock.operations.config.model import Config
from penstock.operations.status import settings_versions
from penstock.operations.tail.changes import TailedChange, rows_of, schema_change_of
from penstock.operations.tail.hidden import HiddenTables
from penstock.quantities import parse_seconds
from penstock.rules.passage import Passage
from penstock.rules.rules import Rules
from penstock.rules.settings import uses_key
from penstock.rules.versions import SettingsVersion
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.view import SchemaView
from penstock.sources.settings import Tables
from penstock.spark.log_follower import LogFollower
from penstock.spark.plan import FrameSummary

SORTED_ROWS_MAX = 50_000
CHUNK_BYTES = 4 << 20  # of entries that are decoded together
_POLL_SECONDS = 0.1

Note = Callable[[str], None]


def tail(
    config: Config,
    tables: Sequence[str] = (),
    *,
    sink: str | None = None,
    start: str = "now",
    follow: bool = True,
    seconds: float | None = None,
    note: Note = lambda text: None,
    clock: Clock = SYSTEM_CLOCK,
) -> Generator[TailedChange]:
    """The changes from `start` on (`now`, `earliest`, a position, or a time such as `10m` ago); with `follow` those that come,
    for at most `seconds`. Raises `BadInput` for a name or a place that there is not, `Unavailable` where nothing was captured."""
    if sink is not None and sink not in config.sinks:
        raise BadInput(f"there is no sink {sink!r}", hint=f"the configuration has {', '.join(config.sinks)}")
    for name in tables:
        if "." not in name.strip("."):
            raise BadInput(f"{name!r} names no table", hint=f"write schema.table, for example {name}.*")
    with closing(LogReader.open(config.state_dir / "log")) as reader:
        rules, begun = _rules(config, sink), _begun(config, sink)
        follower = _Following(reader, _filters(config, tables, sink), rules, note, begun)
        first = _start(reader, start, clock)
        deadline = None if seconds is None else clock.monotonic() + seconds
        known = follower.begin(first)
        if tables and not follower.knows_one():
            known = f"no table that the log knows matches {', '.join(tables)} yet; {known}"
        note(known)
        while True:
            yield from follower.more()
            if not follow or reader.terminated():
                return
            if deadline is not None and clock.monotonic() >= deadline:
                return
            time.sleep(_POLL_SECONDS)


class _Following:
    def __init__(
        self, reader: LogReader, filters: tuple[Tables, ...], rules: Rules, note: Note, begun: SettingsVersion | None
    ) -> None:
        self._begun = begun  # since when the rules hold, if that is known
        self._reader = reader
        self._filters = filters
        self._rules = rules
        self._note = note
        self._start = reader.first
        self._shown: Position | None = None  # everything up to here
        self._skipping = False  # until a transaction ends whose beginning is not read
        self._stopped: set[tuple[str, str]] = set()
        self._void: set[int] = set()
        self._told: set[tuple[str, str]] = set()  # tables of which it was said that they are hidden
        self._hidden: HiddenTables
        self._follower: LogFollower
        self._schemas = SchemaView()

    def begin(self, start: Position) -> str:
        """Reads from here on. In words, what is waited for."""
        before = self._reader.previous(start) if start > self._reader.first else None
        self._skipping = before is not None and not _is_whole(self._reader, before)
        self._open(start)
        return f"changes from {start} on"

    def knows_one(self) -> bool:
        """Whether the log knows a table that is asked for."""
        return any(self._takes(schema, table) for schema, table in self._schemas.names() if table)

    def more(self) -> Iterator[TailedChange]:
        """What is durable and not shown yet."""
        while True:
            if self._shown is not None:  # the log may have gone on in a later ledger
                self._start = self._reader.next(self._shown)
            if self._start < self._reader.first:
                self._jump()
            try:
                frames = self._follower.more()
                yield from self._frames(frames)
            except Trimmed:
                self._jump()
                continue
            if not frames:
                return

    def _jump(self) -> None:
        first = self._reader.first
        self._note(f"the log was trimmed up to {first} meanwhile: what lay before it is not shown")
        self._skipping, self._shown = False, None
        self._open(first)

    def _open(self, start: Position) -> None:
        self._start = start
        self._follower = LogFollower(self._reader, start, keeps_history=True)
        self._schemas = SchemaView(self._follower.in_force())
        begun = self._begun
        held, after = (begun.held, begun.table_version) if begun is not None else ((), 0)
        self._hidden = HiddenTables(self._rules, self._follower.history, held, after)

    def _frames(self, frames: Sequence[FrameSummary]) -> Iterator[TailedChange]:
        size = 0
        for frame in frames:
            if frame.resumes:  # frames that were read mean something else now
                self._open(self._start)
                self._stopped.clear()
                return
            self._void.update(frame.void)
            for table in frame.schemas:
                self._schemas.add(frame.position, table)
            if frame.schemas:
                self._hidden.follow(frame.position, frame.schemas, self._schemas)
            size += frame.data_bytes
            if not frame.whole:
                continue
            if self._skipping:
                self._skipping, size = False, 0
                self._shown, self._start = frame.position, self._reader.next(frame.position)
            elif size >= CHUNK_BYTES or frame is frames[-1]:
                yield from self._decoded(frame.position)
                size = 0
        last = next((frame.position for frame in reversed(frames) if frame.whole), None)
        if last is not None and self._start <= last and not self._skipping:
            yield from self._decoded(last)

    def _decoded(self, end: Position) -> Iterator[TailedChange]:
        """The changes up to `end`, sorted as the log has them."""
        start, self._start, self._shown = self._start, self._reader.next(end), end
        passage = Passage(self._rules, self._schemas.names(), self._schemas)
        waiting: list[TailedChange] = []
        entries = self._reader.entries(start, end)
        for item in decode_entries(entries, self._schemas, self._takes, self._void, on_group=passage.next_group):
            if not self._takes(item.table.schema, item.table.table):
                continue
            hidden = self._held_back(item)
            if hidden is not None:
                waiting.extend(hidden)
                continue
            for seen in passage.apply(item):
                waiting.extend(self._seen(seen))
            if len(waiting) >= SORTED_ROWS_MAX:
                yield from sorted(waiting, key=lambda one: one.seq)
                waiting.clear()
        for seen in passage.finish():
            waiting.extend(self._seen(seen))
        yield from sorted(waiting, key=lambda one: one.seq)

    def _held_back(self, change: ChangeBatch | SchemaChange) -> list[TailedChange] | None:
        """What stands for a change of a table that is hidden: the reason, once; None if it is not."""
        table = change.table
        name = (table.schema, table.table)
        if isinstance(change, SchemaChange):
            seq, commit_ts = change.seq, change.commit_ts
        else:
            seq, commit_ts = change.seq[0].tobytes(), int(change.commit_ts[0])
        reason = self._hidden.reason(name, Seq.from_bytes(seq).position)
        if not reason:
            return None
        if name in self._told:
            return []
        self._told.add(name)
        return [TailedChange(seq, commit_ts, "parked", *self._rules.target(*name), reason=reason)]

    def _seen(self, change: ChangeBatch | SchemaChange) -> Iterator[TailedChange]:
        """A table that is parked, or that its rules do not fit, is named once and shows nothing more."""
        name = (change.table.schema, change.table.table)
        if name in self._stopped:
            return
        if isinstance(change, ChangeBatch):
            yield from rows_of(change)
            return
        if change.table.parked:
            self._stopped.add(name)
        yield schema_change_of(change)

    def _takes(self, schema: str, table: str) -> bool:
        return all(one.matches(schema, table) for one in self._filters)


def _is_whole(reader: LogReader, position: Position) -> bool:
    """Whether no transaction is open after this frame."""
    frames = LogFollower(reader, position).more()
    return not frames or frames[0].whole


def _filters(config: Config, tables: Sequence[str], sink: str | None) -> tuple[Tables, ...]:
    found = [config.source.tables]
    if sink is not None:
        found.append(Tables(include=tuple(config.sinks[sink].only)))
    if tables:
        found.append(Tables(include=tuple(tables)))
    return tuple(found)


def _rules(config: Config, sink: str | None) -> Rules:
    rules = config.rules if sink is None else config.rules_of(sink)
    key = config.mask_key.reveal() if config.mask_key is not None and uses_key(rules) else None
    only = config.source.tables if sink is None else Tables(include=tuple(config.sinks[sink].only))
    return Rules(rules, key, only.matches)


def _begun(config: Config, sink: str | None) -> SettingsVersion | None:
    """The version of a sink's settings that holds at the end of the log, if its rules are those of the configuration."""
    if sink is None:
        return None
    versions: tuple[SettingsVersion, ...] = ()
    with suppress(Unavailable):  # a run is just starting: then all statements count, and more is held back
        versions = settings_versions(config.state_dir, sink)
    return versions[-1] if versions and versions[-1].settings.rules == tuple(config.rules_of(sink)) else None


def _start(reader: LogReader, text: str, clock: Clock) -> Position:
    end = reader.end()
    if text == "now":
        return reader.next(end)
    if text == "earliest":
        return reader.first
    hint = "write now, earliest, a position such as 4:17, or a time such as 10m"
    if ":" in text:
        try:
            start = Position.parse(text)
        except ValueError:
            raise BadInput(f"--from: {text!r} is no position", hint=hint) from None
        if start < reader.first or start > reader.next(end):
            where = f"the log has {reader.first} to {end}" if end >= reader.first else "the log is empty"
            raise BadInput(f"--from: {text} is not in the log: {where}", hint=hint)
        return start
    try:
        age = parse_seconds(text)
    except ValueError:
        raise BadInput(f"--from: {text!r} is no place in the log", hint=hint) from None
    before = reader.find_by_time(max(0, clock.wall_ms() - round(age * 1000)))
    return reader.first if before is None else reader.next(before)

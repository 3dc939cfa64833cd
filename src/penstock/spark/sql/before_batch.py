"""What the driver does before the tasks of a batch, where rules have `sql:`: Spark SQL shapes the rows of those tables, range
by range, into files that the tasks read. The files are gone once the tasks have ended."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import BadInput
from penstock.files.private import make_private_directory, remove_private
from penstock.log.position import Position
from penstock.rules.rules import Rules
from penstock.rules.settings import Rule
from penstock.rules.sql.rows import BadSql, Selection
from penstock.rules.table_rules import RuleMismatch
from penstock.rules.versioned import VersionedRules
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaAt
from penstock.secret import Secret
from penstock.spark.job import Job
from penstock.spark.jvm.context import scratch_directory
from penstock.spark.plan import PlannedRange, preceding
from penstock.spark.sql.query import Made, TableQuery
from penstock.spark.sql.share import SqlShare
from penstock.spark.sql.worker import RangeRows

if TYPE_CHECKING:
    from penstock.spark.jvm.engine import Engine

Name = tuple[str, str]


def sql_directory(state_dir: str, changefeed: str) -> Path:
    """Where the files of a changefeed are, while its tasks need them."""
    return scratch_directory(Path(state_dir)) / "sql" / changefeed


class SqlBeforeBatches:
    """Of one run, for the threads of its batches. `check` comes first."""

    def __init__(self, engine: Engine, job: Job) -> None:
        self._engine = engine
        self._job = job
        key = job.mask_key()
        self._sql = engine.sql()
        self._versioned = VersionedRules(
            job.settings_versions(), Secret(key).reveal() if key is not None else None, self._sql
        )
        rules = [rule for version in self._versioned.versions for rule in version.settings.rules]
        self.tables: frozenset[Name] = frozenset(_name_of(rule) for rule in rules if rule.sql is not None)
        self._directory = sql_directory(job.state_dir, job.changefeed)
        # By table, where Spark gave up first, and why; of replays, which lie elsewhere, apart.
        self._stopped: dict[tuple[str, bool], tuple[Position, str]] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        remove_private(self._directory)

    def touches(self, table: TableSchema) -> bool:
        """Whether a batch must end before the frame that makes this version: in a batch, a table with sql has one version."""
        return (table.schema, table.table) in self.tables

    def check(self, in_force: Iterable[SchemaAt]) -> None:
        """Raises `BadInput` for a statement that no table could ever have; before the first row by the newest settings, also for
        one that does not fit its table."""
        newest = self._versioned.versions[-1]
        known = {(one.table.schema, one.table.table): one.table for one in in_force if one.table.columns}
        begins = self._job.start_position <= newest.since or not self._job.resume
        for rule in newest.settings.rules:
            if rule.sql is None:
                continue
            table = known.get(_name_of(rule))
            try:
                if table is not None and begins:
                    self._versioned.newest.table(table)
                else:
                    self._parse(rule.sql)
            except (RuleMismatch, BadSql) as error:
                hint = error.hint or "correct the sql of the rule"
                raise BadInput(f"{rule.table}: {error.message}", hint=hint) from error

    def _parse(self, statement: str) -> None:
        from penstock.spark.sql.statement import parsed

        with self._sql.lock:
            parsed(self._sql.session, statement)

    @contextmanager
    def of(self, group: str, ranges: Sequence[PlannedRange]) -> Iterator[tuple[list[PlannedRange], float]]:
        """The ranges with what their tasks need, and how many seconds it took."""
        begun = time.perf_counter()
        # By a number of its own: two replays under way at once may begin at the same position.
        directory = self._directory / f"{self._job.run}-{next(self._numbers)}"
        try:
            self._engine.in_group(group)
            prepared = self._prepared(ranges, directory)
            yield prepared, time.perf_counter() - begun
        finally:
            remove_private(directory)

    def _prepared(self, ranges: Sequence[PlannedRange], directory: Path) -> list[PlannedRange]:
        rules = self._versioned.at(ranges[0].start)
        self._ask(ranges)
        plans = dict(self._sql.known)
        known = [replace(one, sql=SqlShare(plans)) for one in ranges]
        shares = [SqlShare(plans) for _ in ranges]
        for number, name in enumerate(sorted(self.tables)):
            table = ranges[0].view().find(*name, ranges[0].first)
            selected = _selected(rules, table)
            if selected is None:
                continue
            full = ".".join(name)
            stop = (full, ranges[0].is_extra)
            if (reason := self._stopped_before(stop, ranges[0].start)) is not None:
                for share in shares:
                    share.stops[full] = (reason, 0)
                continue
            made_of = self._run(name, selected, known, directory / str(number))  # names may have anything in them
            for share, part, made in zip(shares, ranges, made_of, strict=True):
                share.files[full] = made.path
                if made.reason:
                    share.stops[full] = (made.reason, made.image)
                    self._note_stop(stop, part.start, made.reason)
        return [replace(one, sql=share) for one, share in zip(ranges, shares, strict=True)]

    def _stopped_before(self, stop: tuple[str, bool], start: Position) -> str | None:
        """Why the table stopped in front of `start`. Two batches are under way at once, and the later one may be the first to
        find its row: what lies before that row goes on."""
        with self._lock:
            position, reason = self._stopped.get(stop, (None, ""))
        return reason if position is not None and position < start else None

    def _note_stop(self, stop: tuple[str, bool], position: Position, reason: str) -> None:
        with self._lock:
            known = self._stopped.get(stop)
            if known is None or position < known[0]:
                self._stopped[stop] = (position, reason)

    def _ask(self, ranges: Sequence[PlannedRange]) -> None:
        """Has Spark look at every statement, for every version of a table that a task may meet."""
        view = ranges[0].view()
        tables = [view.find(*name, preceding(ranges[0].start)) for name in self.tables]
        tables += [one.table for part in ranges for one in part.schemas if self.touches(one.table)]
        for table in tables:
            if table is None or not table.columns:
                continue
            for rules in self._versioned.all:
                try:
                    rules.table(table)
                except RuleMismatch:
                    continue  # it is known, and stops the table where it is met

    def _run(self, name: Name, selected: Selection, ranges: Sequence[PlannedRange], directory: Path) -> list[Made]:
        make_private_directory(directory)
        job = self._job.to_json()

        def rows(parts: Sequence[int], images_max: int | None) -> RangeRows:
            return RangeRows(job, tuple(ranges[part] for part in parts), name, str(directory), images_max)

        return TableQuery(self._sql, selected, rows, directory).run(len(ranges))


def _name_of(rule: Rule) -> Name:
    schema, _, table = rule.table.partition(".")
    return schema, table


def _selected(rules: Rules, table: TableSchema | None) -> Selection | None:
    """What Spark has to run for the table; None for nothing."""
    if table is None or not table.columns or not rules.wants(table.schema, table.table):
        return None
    try:
        found = rules.selection(table)
    except RuleMismatch:
        return None  # the table stops
    return found if found is not None and found.plan.needs_spark else None

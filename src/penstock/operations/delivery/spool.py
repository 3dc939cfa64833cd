"""The spool's segments on disk, as anybody may look at them: while the process runs, and after it was killed.

Nothing is locked, changed or deleted. A segment that is deleted during the look was not needed any more and is left out.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from penstock.delivery.payload import dispatcher_id
from penstock.delivery.settings import spool_directory
from penstock.delivery.spool.segment_check import RecordSeen, SegmentSeen, check_segment
from penstock.delivery.spool.segment_format import parse_name
from penstock.entries.stores import SCHEMA_HISTORY
from penstock.errors import BadInput, PenstockError
from penstock.files import REAL_FILES, Files
from penstock.log import LogReader
from penstock.state import StateReader
from penstock.wire import connect, socket_path

_TIMEOUT_SECONDS = 5.0


@dataclass(slots=True)
class SpoolSeen:
    """One changefeed's segments. `account` is what the running process says of its spool; None where none answers."""

    changefeed: str
    directory: Path
    segments: list[SegmentSeen] = field(default_factory=list)
    other_files: list[str] = field(default_factory=list)
    account: dict[str, Any] | None = None
    tables: dict[str, str] = field(default_factory=dict)  # names of dispatchers, those that are known
    records: list[RecordSeen] = field(default_factory=list)  # of the one segment that was asked for

    def table_of(self, dispatcher: str) -> str:
        return self.tables.get(dispatcher, "")


@dataclass(slots=True)
class SpoolReport:
    """`incarnation` is that of the running delivery process; None where none answers."""

    state_dir: Path
    incarnation: str | None
    spools: list[SpoolSeen]

    @property
    def damaged(self) -> int:
        return sum(len(segment.damage) for spool in self.spools for segment in spool.segments)

    def is_left(self, segment: SegmentSeen) -> bool:
        """Whether the process that wrote it is gone: the next start deletes it."""
        return self.incarnation is None or not self.incarnation.startswith(segment.name.incarnation)


def inspect_spool(state_dir: Path, *, segment: str | None = None, files: Files = REAL_FILES) -> SpoolReport:
    """Every segment below a state directory. With `segment`, that one alone, and each of its records."""
    if not any(files.exists(state_dir / name) for name in ("run", "log", "lock")):
        raise BadInput(
            f"{state_dir} is no state directory", hint="give the directory that the configuration names as state_dir"
        )
    running = _ask(state_dir)
    accounts = dict(running.get("spools", {}))
    root = spool_directory(state_dir, "x").parent
    names = sorted({*files.list(root), *(quote(name, safe="") for name in accounts)})
    spools = [_look(files, root / name, accounts.get(unquote(name)), segment) for name in names]
    if segment is not None:
        spools = [one for one in spools if one.segments]
        if not spools:
            raise BadInput(f"{root} has no segment {segment}", hint="without --segment all of them are listed")
    _name_tables(state_dir, spools)
    return SpoolReport(state_dir, running.get("incarnation"), spools)


def _ask(state_dir: Path) -> dict[str, Any]:
    path = socket_path(state_dir / "run", "delivery")
    if not path.exists():
        return {}
    try:
        with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
            return client.call("spools")
    except PenstockError:
        return {}


def _look(files: Files, directory: Path, account: dict[str, Any] | None, wanted: str | None) -> SpoolSeen:
    seen = SpoolSeen(unquote(directory.name), directory, account=account)
    try:
        names = files.list(directory)
    except NotADirectoryError:
        return seen
    for name in names:
        parsed = parse_name(name)
        if parsed is None:
            seen.other_files.append(name)
        elif wanted in (None, name):
            try:
                found = check_segment(files, directory / name, parsed, seen.records if wanted is not None else None)
            except FileNotFoundError:
                continue
            seen.segments.append(found)
    return seen


def _name_tables(state_dir: Path, spools: list[SpoolSeen]) -> None:
    """Records have a dispatcher's id, which is a hash of names: those of all tables that the log knows are tried."""
    wanted = [spool for spool in spools if any(segment.dispatchers for segment in spool.segments)]
    if not wanted or not (state_dir / "log").exists():
        return
    try:
        with closing(LogReader.open(state_dir / "log")) as reader, closing(StateReader.open(reader)) as state:
            names = {(table.schema, table.table) for _, table in state.store(SCHEMA_HISTORY).items()}
    except (PenstockError, OSError):
        return  # the ids alone are shown: a damaged log is for `penstock log verify`
    for spool in wanted:
        spool.tables = {dispatcher_id(spool.changefeed, *name): ".".join(name) for name in names}

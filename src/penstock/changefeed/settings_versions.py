"""Which versions of the settings that shape rows a changefeed has, after a start with some settings
(docs/formats/settings-versions.md). The keeper makes the answer durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from penstock.changefeed.facts import SETTINGS
from penstock.entries.whole_end import WholeEnd
from penstock.errors import BadInput
from penstock.files import REAL_FILES, Files
from penstock.log import LogReader, RecordLog
from penstock.log.position import Position
from penstock.rules.holds import HeldTables, Hold, held_after, rules_of
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion
from penstock.schema.model import TableSchema
from penstock.state import BucketState, Change

Versions = tuple[SettingsVersion, ...]


def versions_with(
    known: Sequence[SettingsVersion],
    settings: RowSettings,
    *,
    untouched: bool,
    end: Callable[[], WholeEnd],
    history: Callable[[], Iterable[TableSchema]] = tuple,
    delivered: int = 0,
) -> Versions:
    """The versions of which the last one has these settings. `untouched`: no row was ever taken. `history`: all versions of
    tables in the log; statements up to the commit_ts `delivered` hold nothing back. Both, and `end`, are asked only where it
    matters."""
    if not known or untouched:
        return (SettingsVersion(BEGINNING, 0, settings),)
    if known[-1].settings == settings:
        return tuple(known)
    found = end()
    since = Position(found.position.ledger_id, found.position.entry_id + 1)
    # What begins where the new one does has shaped nothing yet.
    before = [version for version in known if version.since < since]
    if before[-1].settings == settings:
        return tuple(before)
    table_version = max(found.free_version, before[-1].table_version + 1)
    held = _held(before, settings, history, delivered, table_version)
    return (*before, SettingsVersion(since, table_version, settings, held))


def _held(
    before: Sequence[SettingsVersion],
    settings: RowSettings,
    history: Callable[[], Iterable[TableSchema]],
    delivered: int,
    table_version: int,
) -> tuple[Hold, ...]:
    """The tables that are held back where a version begins: by what statements did under the version before it, and by rules
    that say the same in the new one."""
    last = before[-1]
    if not last.settings.rules:
        return ()

    def had(schema: str, table: str) -> bool:
        """Also a table that the last version left out: it may come back."""
        return any(version.settings.wants(schema, table) for version in before)

    held = HeldTables(rules_of(last.settings.rules), had, last.held)
    # A statement that stopped a table under the first version is not delivered: before that one, nobody judged.
    now = held_after(held, history(), last.table_version or delivered, table_version)
    of = rules_of(settings.rules)
    return tuple(hold for _, hold in sorted(now.items()) if hold.holds(of))


def check_begins_nothing(name: str, known: Versions, versions: Versions) -> None:
    """Raises `BadInput` where a version would begin that is not known yet."""
    if len(versions) > 1 and versions[-1] not in known:
        raise BadInput(
            f"{name} was delivered with other settings before: {known[-1].settings.difference(versions[-1].settings)}",
            hint="other settings hold from a start of penstock run on: stop it and start it again",
        )


def check_key(name: str, versions: Sequence[SettingsVersion], given: str, reached: Callable[[Position], bool]) -> None:
    """Raises `BadInput` where rows that are not at the sink yet are to be masked by a key that is not the `given` one (its
    fingerprint). `reached`: whether everything up to a position is at the sink. That the last version is of the given key is
    its maker's to see to."""
    for version, later in pairwise(versions):
        needed = version.settings.key
        if needed and needed != given and not reached(Position(later.since.ledger_id, later.since.entry_id - 1)):
            how = "is another one now" if given else "is not set any more"
            raise BadInput(
                f"{name}: mask_key {how}, and rows that were committed before that are not at the sink yet",
                hint="run with the key and the rules as they were until all of it is delivered (penstock run --once), "
                "then change them; Penstock never keeps a key",
            )


def recorded_versions(state_dir: Path, name: str, files: Files = REAL_FILES) -> Versions:
    """`Keeper.settings_versions` of a changefeed whose keeper is not open. For the holder of the state directory's lock."""
    if not files.exists(state_dir / "progress" / f"{name}.end"):
        return ()  # opening it would make it
    record = RecordLog.open(state_dir / "progress", name, files=files)
    try:
        state = BucketState.open(record)
        try:
            return stored_versions(state)
        finally:
            state.close()
    finally:
        record.close()


def stored_versions(state: BucketState) -> Versions:
    return tuple(SettingsVersion.from_json(value) for _, value in state.store(SETTINGS).items())


def put_versions(state: BucketState, change: Change, known: Versions, versions: Versions) -> None:
    """With the change, `versions` take the place of those that are `known`."""
    store = state.store(SETTINGS)
    for number in range(len(versions), len(known)):
        store.delete(change, number + 1)
    for number, version in enumerate(versions):
        if known[number : number + 1] != (version,):
            store.put(change, number + 1, version.to_json())


def start_with_version(versions: Versions, reader: LogReader, start: Position) -> Position:
    """The same place in the log, by the address where a version begins, if one begins there: a range that starts with that
    address begins the version too, also where the log goes on in a later ledger."""
    for version in versions[1:]:  # the first one begins before everything
        before = Position(version.since.ledger_id, version.since.entry_id - 1)
        if version.since.ledger_id < start.ledger_id and reader.next(before) == start:
            return version.since
    return start

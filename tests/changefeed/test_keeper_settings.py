"""The settings that shape rows have versions, each durable with the position from which it holds."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.changefeed.settings_versions import recorded_versions
from penstock.entries.stores import SCHEMA_HISTORY, SOURCE, SOURCE_POSITION
from penstock.errors import BadInput, PenstockError
from penstock.files.memory import MemoryFiles
from penstock.log import Log, LogReader
from penstock.log.position import Position
from penstock.rules.settings import Rule
from penstock.rules.versions import BEGINNING, RowSettings, key_fingerprint
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.sources.position import SourcePosition
from penstock.state import BucketState

from .conftest import OpenKeeper, fill_log

ONE = RowSettings((Rule(table="a.b", drop=("x",)),))
TWO = RowSettings((Rule(table="a.b", drop=("y",)),))
THREE = RowSettings(only=("a.*",))
HASHED = (Rule(table="a.b", mask={"x": "hmac-sha256"}),)


def keyed(key: str) -> tuple[RowSettings, str]:
    return RowSettings(HASHED, key=key_fingerprint(key)), key_fingerprint(key)


def take(keeper: Keeper, end: Position) -> None:
    """Publishes everything up to `end`, without a row for any table."""
    run = f"r{end}"
    keeper.published(run, keeper.begin_run(run), end, 900, {})


def since(keeper: Keeper) -> list[tuple[Position, RowSettings]]:
    return [(version.since, version.settings) for version in keeper.settings_versions]


def test_before_anything_was_taken_settings_are_replaced(open_keeper: OpenKeeper) -> None:
    assert open_keeper().keep_settings(ONE, "") is None
    assert open_keeper().keep_settings(TWO, "") is None
    assert since(open_keeper()) == [(BEGINNING, TWO)]


def test_others_hold_from_the_end_of_the_log_on(open_keeper: OpenKeeper, state_dir: Path) -> None:
    keeper = open_keeper()
    keeper.keep_settings(ONE, "")
    take(keeper, Position(1, 9))
    keeper = open_keeper()
    begun = keeper.keep_settings(TWO, "")
    assert begun is not None and begun.since == Position(1, 40) and begun.table_version == 1
    fill_log(state_dir, 5)  # in a ledger of its own
    keeper = open_keeper()
    assert keeper.keep_settings(TWO, "") is None, "they hold already"
    begun = keeper.keep_settings(THREE, "")
    assert begun is not None and begun.since > Position(2, 0) and begun.table_version == 2
    again = open_keeper()
    assert since(again) == [(BEGINNING, ONE), (Position(1, 40), TWO), (begun.since, THREE)]
    again.close()
    assert recorded_versions(state_dir, "lake") == again.settings_versions
    assert recorded_versions(state_dir, "lak") == ()


@pytest.mark.parametrize(("version", "held"), [(901, True), (900, False)])
def test_what_a_statement_of_the_log_holds_back_is_durable(
    open_keeper: OpenKeeper, state_dir: Path, version: int, held: bool
) -> None:
    """Unless it is delivered: then nobody stopped in front of it, as the sink of a later start does not."""
    keeper = open_keeper()
    masked = Rule(table="a.*", mask={"mail": "redact"})
    keeper.keep_settings(RowSettings((masked,)), "")
    take(keeper, Position(1, 39))  # up to the commit_ts 900
    key = Column("id", "int", False, True)
    _record(state_dir, TableSchema("a", "b", 5, (key, Column("mail", "text"))))
    _record(state_dir, TableSchema("a", "b", version, (key, Column("email", "text")), ddl_type=DdlType.MODIFY_COLUMN))
    begun = open_keeper().keep_settings(RowSettings((masked, Rule(table="a.b", route="x.y"))), "")
    assert begun is not None and [(hold.table, hold.column) for hold in begun.held] == [("b", "mail")] * held
    assert open_keeper().settings_versions[-1] == begun


def _record(state_dir: Path, table: TableSchema) -> None:
    """As capture does, in a frame of the log."""
    with contextlib.closing(Log.open(state_dir / "log")) as log:
        state = BucketState.open(log)
        change = state.begin()
        state.store(SCHEMA_HISTORY).put(change, (table.schema, table.table, table.version), table)
        position = SourcePosition("f", 4, commit_ts=table.version)
        state.store(SOURCE_POSITION).put(change, SOURCE, position)
        state.commit(change, b"").result()


def test_while_the_log_has_not_gone_on_the_last_change_counts(open_keeper: OpenKeeper) -> None:
    keeper = open_keeper()
    keeper.keep_settings(ONE, "")
    take(keeper, Position(1, 39))
    open_keeper().keep_settings(TWO, "")
    open_keeper().keep_settings(THREE, "")
    assert since(open_keeper()) == [(BEGINNING, ONE), (Position(1, 40), THREE)]
    assert open_keeper().keep_settings(ONE, "") is None
    assert since(open_keeper()) == [(BEGINNING, ONE)], "as it was before: nothing has changed"


def test_a_run_begins_where_a_version_does(open_keeper: OpenKeeper, state_dir: Path) -> None:
    """Also where the log goes on in another ledger: the range that begins a version is known by its start."""
    keeper = open_keeper()
    keeper.keep_settings(ONE, "")
    take(keeper, Position(1, 39))
    open_keeper().keep_settings(TWO, "")
    fill_log(state_dir, 3)
    keeper = open_keeper()
    assert keeper.begin_run("r1") == Position(1, 40)
    keeper.published("r1", Position(1, 40), keeper.reader.end(), 901, {})
    assert keeper.mark_delete == keeper.reader.end()


def test_a_version_begins_only_while_capture_does_not_run(open_keeper: OpenKeeper, state_dir: Path) -> None:
    """The next entry of a running capture is at `since`: the rows of a chunk there have the seqs of the version's own DDL, and
    a DDL may have its number."""
    keeper = open_keeper()
    assert keeper.keep_settings(ONE, "", capturing=True) is None
    assert keeper.keep_settings(TWO, "", capturing=True) is None, "nothing was taken yet"
    take(keeper, Position(1, 39))
    with contextlib.closing(Log.open(state_dir / "log")) as log:
        log.append(b"of a running capture").result()
        with pytest.raises(BadInput, match=r"other settings before: rule 1 was .*\"y\".* and is now .*\"x\"") as caught:
            open_keeper().keep_settings(ONE, "", capturing=True)
        assert "start it again" in caught.value.hint
        assert since(open_keeper()) == [(BEGINNING, TWO)], "a refusal leaves everything as it was"
        assert open_keeper().keep_settings(TWO, "", capturing=True) is None


def test_another_key_needs_everything_before_it_delivered(open_keeper: OpenKeeper) -> None:
    first, second = keyed("the first key of all"), keyed("the second key of all")
    keeper = open_keeper()
    keeper.keep_settings(*first)
    take(keeper, Position(1, 9))
    for settings, key in (second, (ONE, ""), (ONE, second[1])):
        with pytest.raises(BadInput, match=r"mask_key is .*rows that were committed before") as caught:
            open_keeper().keep_settings(settings, key)
        assert "penstock run --once" in caught.value.hint
    assert since(open_keeper()) == [(BEGINNING, first[0])], "a refusal leaves everything as it was"
    keeper = open_keeper()
    assert keeper.keep_settings(ONE, first[1]) is not None, "the key is still there for what waits"
    with pytest.raises(BadInput, match="not set any more"):
        open_keeper().keep_settings(ONE, "")
    take(open_keeper(), Position(1, 39))
    open_keeper().keep_settings(ONE, "")
    begun = open_keeper().keep_settings(*second)
    assert begun is not None and begun.settings.key == second[1]


def test_the_key_is_not_in_what_is_recorded(open_keeper: OpenKeeper, state_dir: Path) -> None:
    open_keeper().keep_settings(*keyed("canary-key-0123456789"))
    open_keeper().close()
    files = [path for path in state_dir.rglob("*") if path.is_file()]
    assert files and not any(b"canary-key" in path.read_bytes() for path in files)


@pytest.mark.parametrize("seed", range(3))
def test_power_cut_at_every_operation_of_a_change(state_dir: Path, seed: int) -> None:
    """Either the old settings are in force at the next start or the new ones, with the same position."""
    reader = LogReader.open(state_dir / "log")
    expected = [(BEGINNING, ONE), (Position(1, 40), TWO)]
    for operation in range(1, 100):
        files = MemoryFiles()
        keeper = Keeper.open(state_dir, f"lake{operation}-{seed}", reader, files=files)
        keeper.keep_settings(ONE, "")
        take(keeper, Position(1, 9))
        files.cut_power_at(files.operations + operation)
        try:
            keeper.keep_settings(TWO, "")
            answered = True
        except PenstockError:
            answered = False
        over = answered
        with contextlib.suppress(PenstockError):
            keeper.close()
        keeper = Keeper.open(state_dir, f"lake{operation}-{seed}", reader, files=files.crash(random.Random(seed)))
        assert since(keeper) in ([expected] if answered else [expected[:1], expected])
        keeper.keep_settings(TWO, "")
        assert since(keeper) == expected
        keeper.close()
        if over:
            assert operation > 1, "it was cut at least once"
            reader.close()
            return
    raise AssertionError("the change never came to its end")

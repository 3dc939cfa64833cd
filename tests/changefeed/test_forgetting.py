"""A changefeed that is forgotten is gone with all that was known of it, whenever the power is cut; others are not touched."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.changefeed.forgetting import forget_changefeed, left_feeds
from penstock.changefeed.keeper import Keeper
from penstock.errors import BadInput, PenstockError
from penstock.files.memory import MemoryFiles
from penstock.log import CursorTable, Log, LogReader
from penstock.log.position import Position
from penstock.rules.settings import Rule
from penstock.rules.versions import BEGINNING, RowSettings

from .conftest import OpenKeeper, fill_log
from .test_keeper_settings import take

OLD = RowSettings((Rule(table="a.b", drop=("x",)),))
NEW = RowSettings(only=("a.*",))


def test_one_that_is_not_configured_is_named_and_forgotten(open_keeper: OpenKeeper, state_dir: Path) -> None:
    keeper = open_keeper()
    keeper.keep_settings(OLD, "")
    take(keeper, Position(1, 9))
    keeper.close()
    with Log.open(state_dir / "log") as log:
        log.open_cursor("mine")
    reader = LogReader.open(state_dir / "log")
    assert left_feeds(state_dir, ["lake"], reader) == []
    (left,) = left_feeds(state_dir, ["other"], reader)
    assert (left.name, left.mark_delete, left.entries) == ("lake", Position(1, 9), 30)
    with pytest.raises(BadInput, match="no changefeed 'lak'"):
        forget_changefeed(state_dir, "lak", reader)
    forget_changefeed(state_dir, "lake", reader)
    assert left_feeds(state_dir, [], reader) == []
    assert [info.name for info in CursorTable(reader).infos()] == ["mine"]
    assert not list((state_dir / "progress").iterdir()) and not list((state_dir / "cursors").iterdir())
    again = open_keeper()
    assert again.keep_settings(NEW, "") is None, "it begins anew, and nothing was delivered with other settings"
    assert [version.since for version in again.settings_versions] == [BEGINNING]


def test_the_power_is_cut_at_every_operation(tmp_path: Path) -> None:
    """What comes back is the changefeed as it was, or one that begins anew: never its place with another past."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    fill_log(tmp_path, 5)
    outcomes = []
    operation = 1
    while True:
        name, files = f"feed{operation}", MemoryFiles()
        reader = LogReader.open(tmp_path / "log")
        keeper = Keeper.open(tmp_path, name, reader, files=files)
        keeper.keep_settings(OLD, "")
        keeper.create({"d" * 32: ("shop", "t")})
        take(keeper, Position(1, 2))
        keeper.close()
        files.cut_power_at(files.operations + operation)
        try:
            forget_changefeed(tmp_path, name, reader, files=files)
            cut = False
        except PenstockError:
            cut = True
        after = files.crash(random.Random(seed))
        for _ in range(2):  # whoever comes next: one that opens it, and one that opens it again
            keeper = Keeper.open(tmp_path, name, reader, files=after)
            whole = (keeper.mark_delete, len(keeper.facts()), len(keeper.settings_versions))
            keeper.close()
        assert whole in ((Position(1, 2), 1, 1), (Position(1, -1), 0, 0)), (operation, whole)
        outcomes.append(whole[1])
        forget_changefeed(tmp_path, name, reader, files=after)
        assert left_feeds(tmp_path, [], reader, after) == []
        reader.close()
        if not cut:
            break
        operation += 1
    assert operation > 5 and {0, 1} == set(outcomes), outcomes
    assert outcomes == sorted(outcomes, reverse=True), "once it is forgotten it stays so"

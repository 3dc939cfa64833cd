"""The power is cut at every operation on the keeper's files: what was answered is there, what was not is whole or absent."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.errors import PenstockError
from penstock.files.memory import MemoryFiles
from penstock.log import LogReader
from penstock.log.position import Position, Seq

from .conftest import fill_log
from .crashing_keeper import DISPATCHERS, intent_for
from .test_keeper_crash import check

ENTRIES = 3


def deliver_everything(keeper: Keeper, said: list[str]) -> None:
    keeper.create({dispatcher: ("shop", dispatcher[0]) for dispatcher in DISPATCHERS})
    keeper.begin_run("r1")
    said.append("begin 0")
    for entry in range(ENTRIES):
        seq = Seq(1, entry, 0, 0)
        keeper.published("r1", Position(1, entry), Position(1, entry), entry + 1, dict.fromkeys(DISPATCHERS, seq))
        for dispatcher in DISPATCHERS:
            keeper.intent(dispatcher, 1, intent_for(dispatcher, entry))
            said.append(f"intent {dispatcher} {entry}")
            checkpoint = keeper.done(dispatcher, 1, seq, intent_for(dispatcher, entry).path)
            said.append(f"done {dispatcher} {entry} {checkpoint}")


def cut_at(state_dir: Path, name: str, operation: int, seed: int) -> bool:
    """Cuts at the n-th operation after opening, and checks what is left. False where the script ended before it."""
    files = MemoryFiles()
    reader = LogReader.open(state_dir / "log")
    said: list[str] = []
    keeper = Keeper.open(state_dir, name, reader, files=files)
    files.cut_power_at(files.operations + operation)
    cut = False
    try:
        deliver_everything(keeper, said)
    except PenstockError:
        cut = True
        with pytest.raises(PenstockError):  # memory may be ahead of the disk: nothing more is answered
            keeper.done(DISPATCHERS[0], 1, Seq(1, 99, 0, 0), None)
    try:
        keeper.close()
    except PenstockError:
        cut = True
    keeper = Keeper.open(state_dir, name, reader, files=files.crash(random.Random(seed)))
    try:
        if said:
            check(keeper, said)
    finally:
        keeper.close()
        reader.close()
    return cut


def test_the_power_is_cut_at_every_operation(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    fill_log(tmp_path, ENTRIES)
    operation = 1
    while cut_at(tmp_path, f"feed{operation}", operation, seed):
        operation += 1
        assert operation < 1000
    assert operation > 20, "there were hardly any operations to cut at"

"""The power is cut at every operation of a log's deletion: the next owner finishes the deletion before it opens the log."""

from __future__ import annotations

import contextlib
import random

import pytest

from penstock.files.memory import PowerCut
from penstock.log import Cursor, Log, LogReader
from penstock.log.deletion import delete_log
from tests.crash.log.world import CURSORS, DIRECTORY, SETTINGS, LogWorld, read_all
from tests.crash.stepping import STEPS, stepping

ENTRIES = 9


def full_world() -> LogWorld:
    world = LogWorld()
    opened = world.open()
    for number in range(ENTRIES):
        data = b"%d|" % number + bytes(300)
        world.facts.acknowledge(world.facts.submit(data), position := opened.append(number, data).result())
        if number % 2:
            opened.cursors["a"].ack(position).result()
    opened.close()
    return world


@pytest.mark.parametrize("seed", range(4))
def test_the_power_is_cut_while_a_log_is_deleted(seed: int) -> None:
    rng = random.Random(seed)
    with stepping():
        operation = 0
        finished = False
        while not finished:
            operation += 1
            world = full_world()
            world.files.cut_power_at(world.files.operations + operation)
            try:
                delete_log(DIRECTORY, world.files, world.clock, world.metadata)
                finished = True
            except PowerCut:
                pass
            crashed = world.crash(rng)
            STEPS.reset()
            log = Log.open(DIRECTORY, SETTINGS, crashed.files, crashed.clock, crashed.metadata)
            reader = LogReader.open(DIRECTORY, crashed.files, crashed.metadata)
            found = [number for number, _, _ in read_all(reader)]
            assert not found, f"cut at {operation}: the list said that it is deleted, but {found} are there"
            cursor = Cursor.open(reader, CURSORS, "a", files=crashed.files)
            assert not cursor.is_acked(log.append(b"0|new").result()), (
                f"cut at {operation}: acks of the old log are there"
            )
            cursor.close()
            with contextlib.suppress(PowerCut):
                log.close()
            delete_log(DIRECTORY, crashed.files, crashed.clock, crashed.metadata)
            left = [name for name in crashed.files.list(DIRECTORY) if name.startswith("ledger")]
            assert not left, f"cut at {operation}: {left} are left"
            assert not crashed.metadata.children(""), "metadata is left"
            STEPS.reset()
        assert operation > 10


def test_a_cursor_whose_making_was_cut_short_can_be_made_in_the_next_log() -> None:
    """The deletion of the log knows nothing of a cursor that was not registered yet: its files stay."""
    with stepping():
        operation = 0
        finished = False
        while not finished:
            operation += 1
            world = LogWorld()
            log = Log.open(DIRECTORY, SETTINGS, world.files, world.clock, world.metadata)
            log.append(b"0|old").result()
            world.files.cut_power_at(world.files.operations + operation)
            try:
                log.open_cursor("new")
                finished = True
            except PowerCut:
                pass
            crashed = world.crash(random.Random(operation))
            STEPS.reset()
            delete_log(DIRECTORY, crashed.files, crashed.clock, crashed.metadata)
            log = Log.open(DIRECTORY, SETTINGS, crashed.files, crashed.clock, crashed.metadata)
            position = log.append(b"0|new").result()
            cursor = log.open_cursor("new")
            assert not cursor.is_acked(position)
            cursor.ack(position).result()
            log.close()
            STEPS.reset()
        assert operation > 10

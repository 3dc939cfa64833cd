"""Single bits flipped in the files of a state's checkpoints: each flip is healed, also where the log was trimmed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.state import StateLost
from tests.crash.state.world import DIRECTORY, StateWorld
from tests.crash.stepping import STEPS, stepping
from tests.support.budget import STATE_FLIPS


def built(*, trims: bool) -> StateWorld:
    """Several checkpoints, and a tail after them."""
    world = StateWorld(trims=trims)
    opened = world.open()
    facts = world.facts
    for number in range(14):
        edits: dict[int, bytes | None] = {number % 6: b"%d" % number * 200, (number + 3) % 6: None}
        content = {**facts.newest, **edits, "number": number}
        facts.commit({key: value for key, value in content.items() if value is not None})
        facts.acknowledge(number, opened.commit(number, edits).result())
        if number in (5, 8, 11):
            opened.state.checkpoint()
    if trims:
        opened.log.trim()
        assert opened.log.reader().trimmed_below > 0
    opened.close()
    world.kill()
    STEPS.reset()
    return world


def checkpoint_files(world: StateWorld) -> list[Path]:
    directory = DIRECTORY / "state"
    return [directory / name for name in world.files.list(directory)]


@pytest.mark.parametrize("trims", [False, True], ids=["whole log", "trimmed log"])
def test_every_flip_is_healed(trims: bool) -> None:
    rng = random.Random(5)
    with stepping():
        world = built(trims=trims)
        paths = checkpoint_files(world)
        assert len(paths) >= 4
        sizes = [world.files.open(path).size() for path in paths]
        for _ in range(STATE_FLIPS):
            damaged = world.crash(rng)
            (path,) = rng.choices(paths, sizes)
            node = damaged.files._names[path]
            at = rng.randrange(len(node.content))
            node.content[at] ^= 1 << rng.randrange(8)
            try:
                damaged.open().close()  # compares with what was committed
            finally:
                damaged.files.cut_power()
                STEPS.reset()


def test_what_cannot_be_healed_is_named() -> None:
    """Two damaged pages of one stripe in a run that all checkpoints share, and a trimmed log."""
    with stepping():
        world = built(trims=True)
        run = next(path for path in checkpoint_files(world) if path.name.startswith("run-"))
        content = world.files._names[run].content
        for at in range(0, len(content), 512):
            content[at] ^= 1
        with pytest.raises(StateLost, match="run-"):
            world.open()
        world.files.cut_power()
        STEPS.reset()


@pytest.mark.parametrize("size", [0, 1, 100])
def test_an_empty_or_short_file_is_never_valid(size: int) -> None:
    with stepping():
        world = built(trims=False)
        for path in checkpoint_files(world):
            damaged = world.crash(random.Random(1))
            del damaged.files._names[path].content[size:]
            damaged.open().close()
            damaged.files.cut_power()
            STEPS.reset()

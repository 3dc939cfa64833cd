"""Single bits flipped in the files of a state's checkpoints: each flip is healed from the log, or named where the log that
could heal it was trimmed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.errors import Corruption
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
def test_every_flip_is_healed_or_named(trims: bool) -> None:
    rng = random.Random(5)
    named = 0
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
            except (StateLost, Corruption) as error:
                named += 1
                assert trims, f"bit flip in {path.name} at {at} was not healed: {error}"
                assert "run-" in str(error) or "checkpoint-" in str(error), error
            finally:
                damaged.files.cut_power()
                STEPS.reset()
    print(f"{STATE_FLIPS} flips, {named} named")
    assert named < STATE_FLIPS


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

"""Whatever the keeper answered is there after kill -9, and nothing that it did not promise."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.errors import Terminal
from penstock.log import LogReader
from penstock.log.position import Position, Seq
from tests.support.waiting import LIMIT_SECONDS

from .conftest import fill_log
from .crashing_keeper import intent_for

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
ENTRIES = 400


def run_and_kill(state_dir: Path, lines: int) -> list[str]:
    """What the process said before it was killed in the middle of its work."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.changefeed.crashing_keeper", str(state_dir)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    assert process.stdout is not None
    said = [process.stdout.readline().decode().strip() for _ in range(lines)]
    process.kill()
    said += process.stdout.read().decode().split("\n")
    process.wait(LIMIT_SECONDS)
    return [line for line in said if line]


def test_what_was_answered_survives_kill_9(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    fill_log(tmp_path, ENTRIES)
    for _ in range(3):
        said = run_and_kill(tmp_path, rng.randrange(20, 200))
        with (
            closing(LogReader.open(tmp_path / "log")) as reader,
            closing(Keeper.open(tmp_path, "lake", reader)) as keeper,
        ):
            check(keeper, said)


def check(keeper: Keeper, said: list[str]) -> None:
    assert said[0].startswith("begin "), said
    facts = keeper.facts()
    checkpoint = 0
    newest: dict[str, tuple[str, int]] = {}
    for line in said[1:]:
        word, dispatcher, entry, *rest = line.split(" ")
        newest[dispatcher] = (word, int(entry))
        checkpoint = max(checkpoint, *map(int, rest)) if rest else checkpoint
    for dispatcher, (word, entry) in newest.items():
        one = facts[dispatcher]
        progress = one.progress.entry_id if one.progress is not None else -1
        if word == "done":
            assert progress >= entry
        else:
            # Its end may be durable though nobody heard the answer.
            assert one.intent == intent_for(dispatcher, entry) or progress >= entry
    assert keeper.checkpoint_ts >= checkpoint
    lowest = min(one.progress or Seq(1, -1, 0, 0) for one in facts.values())
    assert keeper.mark_delete <= lowest.position, "the cursor led progress"
    assert keeper.checkpoint_ts <= lowest.entry_id + 1


@pytest.mark.parametrize("answers", range(1, 7))
def test_cut_right_after_each_answer(tmp_path: Path, answers: int) -> None:
    """The process kills itself after its n-th answer: odd ones are intents, even ones are done."""
    fill_log(tmp_path, 3)
    command = [sys.executable, "-m", "tests.changefeed.crashing_keeper", str(tmp_path), str(answers)]
    ended = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, timeout=LIMIT_SECONDS, check=False)
    assert ended.returncode == -9, ended.stderr
    said = ended.stdout.decode().splitlines()
    assert len(said) == answers + 1
    with closing(LogReader.open(tmp_path / "log")) as reader, closing(Keeper.open(tmp_path, "lake", reader)) as keeper:
        check(keeper, said)
        _, dispatcher, entry, *_ = said[-1].split(" ")
        intent = intent_for(dispatcher, int(entry))
        facts = keeper.facts()[dispatcher]
        if answers % 2:
            assert facts.intent == intent
            with pytest.raises(Terminal, match="is not done"):
                keeper.intent(dispatcher, 1, intent_for(dispatcher, int(entry) + 1))
            keeper.intent(dispatcher, 1, intent)
        else:
            assert (facts.intent, facts.progress, facts.last_path) == (None, intent.last_seq, intent.path)
        assert keeper.mark_delete == Position(1, answers // 4 - 1)
        assert keeper.checkpoint_ts == answers // 4

"""`python -m penstock.spark` as `penstock run` starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.spark.rig import CHANGEFEED, Rig
from tests.support.waiting import LIMIT_SECONDS


@contextmanager
def driver(settings: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock.spark"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(settings) + "\n")
    child.stdin.flush()
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def events(child: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert child.stdout is not None
    for line in child.stdout:
        yield json.loads(line)


def descendants(pid: int) -> dict[int, str]:
    """Every process below `pid`: the JVM, the workers and what they are forked from."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            name, fields = text[text.index("(") : text.rindex(")") + 1], text[text.rindex(")") + 2 :].split()
            parents[int(entry.name)] = (int(fields[1]), name)
    found: dict[int, str] = {}
    level = {pid}
    while level:
        level = {child for child, (parent, _) in parents.items() if parent in level}
        found |= {child: parents[child][1] for child in level}
    return found


def settings_of(rig: Rig) -> dict[str, Any]:
    spark = {"master": "local[2,3]"}
    return {"state_dir": str(rig.state_dir), "changefeeds": {CHANGEFEED: rig.changefeed}, "spark": spark}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, changes=1000)
    yield made
    made.close()


def test_settings_that_make_no_sense_are_told_and_the_jvm_is_gone(tmp_path: Path) -> None:
    settings = {"state_dir": str(tmp_path), "changefeeds": {CHANGEFEED: {"format": "xml"}}}
    with driver(settings) as child:
        [event] = list(events(child))
        assert child.wait(LIMIT_SECONDS) == 2
    assert event["event"] == "error"
    assert event["kind"] == "BadInput"
    assert "xml" in event["message"]


@pytest.mark.spark
def test_delivers_and_ends_when_its_input_closes(rig: Rig) -> None:
    with driver(settings_of(rig)) as child:
        said = events(child)
        first = next(said)
        assert first["event"] == "ready", first
        rig.wait_delivered()
        below = descendants(child.pid)
        assert "(java)" in below.values()
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(LIMIT_SECONDS) == 0
        last = list(said)[-1]
        await_gone(below)
    assert last["event"] == "progress"
    assert last["rows"] == sum(len(rows) for rows in rig.delivered().values()) > 0
    assert rig.delivered() == rig.expected()


@pytest.mark.spark
def test_a_killed_driver_leaves_nothing_behind(rig: Rig) -> None:
    with driver(settings_of(rig)) as child:
        first = next(events(child))
        assert first["event"] == "ready", first
        rig.wait_until("a first batch", lambda: rig.keeper.published_end > rig.keeper.reader.first)
        below = descendants(child.pid)
        assert len(below) >= 3, "the JVM, the process that workers are forked from, a worker"
        os.kill(child.pid, signal.SIGKILL)
        await_gone(below)


@pytest.mark.spark
def test_a_dead_jvm_asks_for_another_try(rig: Rig) -> None:
    with driver(settings_of(rig)) as child:
        said = events(child)
        first = next(said)
        assert first["event"] == "ready", first
        [jvm] = [pid for pid, name in descendants(child.pid).items() if name == "(java)"]
        os.kill(jvm, signal.SIGKILL)
        assert child.wait(LIMIT_SECONDS) == 75
        assert any(event["event"] == "error" for event in said)


def await_gone(processes: dict[int, str], seconds: float = 10.0) -> None:
    """Gone within a second on a quiet machine; what is asserted allows for a loaded one."""
    end = time.monotonic() + seconds
    while alive := {pid: name for pid, name in processes.items() if Path(f"/proc/{pid}").exists() and not zombie(pid)}:
        assert time.monotonic() < end, f"still there: {alive}"
        time.sleep(0.05)


def zombie(pid: int) -> bool:
    try:
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True

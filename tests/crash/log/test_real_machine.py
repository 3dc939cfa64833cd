"""The real kernel: power cuts, full disks, failing calls, killed and stopped processes.

Mounting needs root (or `sudo` without a password) and a kernel that allows it. Where the kernel refuses, tests are always
skipped. Where only the right to mount or a tool is missing, they are skipped too, but fail in strict mode.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PenstockError, Unavailable
from penstock.log import Log
from penstock.operations.log.verify import verify_log
from tests.crash.log.real_machine import (
    SETTINGS,
    Answers,
    CannotMount,
    MayNotMount,
    Mounted,
    Writer,
    ext4,
    offloading,
    payload,
    privileged,
    tmpfs,
)
from tests.support.budget import CUTS, FAILED_CALLS
from tests.support.components import missing
from tests.support.waiting import LIMIT_SECONDS
from tools.components import REPOSITORY, MissingComponent
from tools.components.strace import find_strace


@contextlib.contextmanager
def mounting() -> Iterator[None]:
    """Skips where file systems cannot be mounted; in strict mode only where the kernel refuses."""
    try:
        yield
    except MayNotMount as error:
        missing(str(error))
    except CannotMount as error:
        pytest.skip(f"this machine cannot mount: {error}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Mounted]:
    with mounting(), ext4(tmp_path) as mounted:
        yield mounted


def test_the_power_is_cut(disk: Mounted) -> None:
    rng = random.Random(3)
    answers = Answers()
    for _ in range(CUTS):
        writer = Writer(disk.place)
        writer.hear(rng.randrange(1, 120))
        disk.cut_power()
        answers.hear(writer.end())
        disk.unmount()
        disk.mount()
        answers.check(disk.place)
    assert len(answers.entries) > CUTS


def test_the_power_is_cut_while_ledgers_move(disk: Mounted) -> None:
    """Local files go while their copies, on the same disk, must have come through."""
    rng = random.Random(7)
    answers = Answers()
    rounds = moved = 0
    while (
        rounds < CUTS // 4 or moved <= CUTS // 12
    ):  # on a busy machine a writer may be cut before its first ledger moves
        rounds += 1
        assert rounds < 20 * CUTS, "hardly anything moves"
        writer = Writer(disk.place, settings=offloading(disk.place))
        writer.hear(rng.randrange(1, 120))
        disk.cut_power()
        answers.hear(writer.end())
        disk.unmount()
        disk.mount()
        answers.check(disk.place)
        check = verify_log(disk.place / "log")
        assert check.sound, check.faults
        moved = check.offloaded


def test_the_writer_is_killed(tmp_path: Path) -> None:
    rng = random.Random(4)
    answers = Answers()
    for _ in range(CUTS):
        writer = Writer(tmp_path)
        writer.hear(rng.randrange(1, 120))
        time.sleep(rng.random() * 0.003)
        answers.hear(writer.end())
    assert answers.check(tmp_path) > CUTS


def test_a_stopped_owner_is_deposed_and_writes_nothing_more(tmp_path: Path) -> None:
    """The lock goes with the process; where it is lost all the same, the epoch keeps the old owner out."""
    rng = random.Random(5)
    answers = Answers()
    for turn in range(6):
        old = Writer(tmp_path, owner=1)
        old.hear(rng.randrange(5, 60))
        old.send(signal.SIGSTOP)
        with pytest.raises(Unavailable):
            Log.open(tmp_path / "log", SETTINGS)
        for lock in (tmp_path / "log" / "lock", tmp_path / "cursors" / "c.lock"):
            lock.unlink(missing_ok=True)  # as on a file system that forgets locks
        new = Writer(tmp_path, owner=2)
        new.hear(20)
        answers.hear(new.end())
        old.send(signal.SIGCONT)
        said = old.end(None)
        assert b"error Fenced" in said, f"turn {turn}: the old owner was not fenced: {said[-200:]!r}"
        answers.hear(said)
        answers.check(tmp_path)


def test_the_disk_is_full_and_then_has_room_again(tmp_path: Path) -> None:
    with mounting(), tmpfs(tmp_path, "size=1m") as disk:
        ballast = disk.place / "ballast"
        log = Log.open(disk.place / "log", SETTINGS)
        ballast.write_bytes(bytes(400_000))
        written: list[bytes] = []
        number = 0
        with pytest.raises(PenstockError):
            while True:
                number += 1
                log.append(payload(number)).result()
                written.append(payload(number))
        assert number > 10
        ballast.unlink()
        with contextlib.suppress(PenstockError):
            log.close()
        log = Log.open(disk.place / "log", SETTINGS)
        assert [bytes(entry.data) for entry in log.read(log.reader().first, log.end())][: len(written)] == written
        log.append(b"goes on").result()
        log.close()


def test_there_are_no_inodes_left(tmp_path: Path) -> None:
    with mounting(), tmpfs(tmp_path, "size=8m,nr_inodes=14") as disk:
        log = Log.open(disk.place / "log", SETTINGS)
        written: list[bytes] = []
        with contextlib.suppress(PenstockError):
            for number in range(1, 500):
                log.append(payload(number)).result()
                written.append(payload(number))
        with contextlib.suppress(PenstockError):
            log.close()
        for name in os.listdir(disk.place):
            if name.startswith("spare"):
                (disk.place / name).unlink()
        privileged("mount", "-o", "remount,nr_inodes=1000", str(disk.place))
        log = Log.open(disk.place / "log", SETTINGS)
        assert [bytes(entry.data) for entry in log.read(log.reader().first, log.end())][: len(written)] == written
        assert len(written) > 100
        log.close()


def test_the_disk_below_the_file_system_is_full(tmp_path: Path) -> None:
    """The write succeeds, its sync does not, and the next sync would: nothing is acknowledged after the first error."""
    with mounting(), tmpfs(tmp_path, "size=24m") as below, ext4(below.place, 200) as disk:
        Log.open(disk.place / "log", SETTINGS).close()
        os.sync()
        room = os.statvfs(below.place)
        (below.place / "ballast").write_bytes(bytes(max(room.f_bavail * room.f_bsize - 700_000, 0)))
        writer = Writer(disk.place)
        said = writer.end(None)  # it dies by itself
        assert b"error" in said
        answers = Answers()
        answers.hear(said)
        assert answers.entries, "the disk was full from the start"
        disk.unmount()
        (below.place / "ballast").unlink()
        disk.mount()
        answers.check(disk.place)


def test_strict_mode_skips_only_what_the_machine_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STRICT", "1")
    with pytest.raises(pytest.fail.Exception, match="root"), mounting():
        raise MayNotMount("mounting needs root")
    with pytest.raises(pytest.skip.Exception, match="permission denied"), mounting():
        raise CannotMount("mount: permission denied")
    monkeypatch.delenv("PENSTOCK_STRICT")
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="root"), mounting():
        raise MayNotMount("mounting needs root")


@pytest.mark.parametrize(("call", "error"), [("fdatasync", "EIO"), ("pwritev,pwrite64", "ENOSPC"), ("rename", "EIO")])
def test_system_calls_fail(tmp_path: Path, call: str, error: str) -> None:
    try:
        strace = find_strace()
    except MissingComponent as reason:
        missing(str(reason))
    probe = subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"this machine does not let strace work: {probe.stderr.strip()}")
    rng = random.Random(call)
    for turn in range(FAILED_CALLS):
        directory = tmp_path / str(turn)
        directory.mkdir()
        which = rng.randrange(1, 60 if call != "rename" else 8)
        command = [
            strace, "--seccomp-bpf", "-f", "-o", directory / "trace", "-e", f"trace={call}",
            "-e", f"inject={call}:error={error}:when={which}", sys.executable, "-m", "tests.crash.log.real_machine", directory, "30",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, cwd=REPOSITORY, timeout=LIMIT_SECONDS, check=False)
        answers = Answers()
        answers.hear(done.stdout)
        assert done.returncode == 0 or b"Error" in done.stderr or b"penstock" in done.stderr, done.stderr[-500:]
        answers.check(directory)

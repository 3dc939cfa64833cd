"""A real writer process, real file systems that can be filled up or cut off, and a check of what is left.

    python -m tests.crash.log.real_machine DIRECTORY [ENTRIES]      appends and acks until it is killed, or so many entries

The writer prints what is durable, one fact a line: `entry NUMBER POSITION` or `ack POSITION`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock.log import Cursor, Log, LogReader, LogSettings, Pending, Position
from tests.support.waiting import LIMIT_SECONDS

SETTINGS = LogSettings(ledger_bytes_max=100_000, preallocate_bytes=64 << 10)
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
_NO_FLUSH = 2


def payload(number: int, owner: int = 0) -> bytes:
    return b"%d:%d:" % (number, owner) + bytes([number % 251]) * (number * 37 % 3000)


def offloading(directory: Path) -> LogSettings:
    """As `SETTINGS`, with small ledgers that are moved at once to an object store on the same disk."""
    return dataclasses.replace(
        SETTINGS,
        ledger_bytes_max=12_000,
        offload_url=(directory / "objects").as_uri(),
        offload_threshold_bytes=0,
        offload_deletion_lag_seconds=0,
    )


def write(
    directory: Path,
    say: Callable[[str], None],
    entries: int | None = None,
    owner: int = 0,
    settings: LogSettings = SETTINGS,
) -> None:
    """Appends, with up to 8 entries in flight, and acks two of three."""
    log = Log.open(directory / "log", settings)
    reader = LogReader.open(directory / "log")
    cursor = Cursor.open(reader, directory / "cursors", "c")
    number = sum(view.entries for view in reader.ledgers())
    last = None if entries is None else number + entries
    waiting: list[tuple[int, Pending[Position]]] = []
    while last is None or number < last or waiting:
        if last is None or number < last:
            number += 1
            waiting.append((number, log.append(payload(number, owner))))
        if len(waiting) > 8 or (last is not None and number >= last):
            first, pending = waiting.pop(0)
            position = pending.result()
            say(f"entry {first} {position}\n")
            if first % 3:
                cursor.ack(position, position).result()
                say(f"ack {position}\n")
    cursor.close()
    reader.close()
    log.close()


@dataclass
class Answers:
    """What all writers so far printed as durable."""

    entries: dict[Position, int] = field(default_factory=dict)
    acks: set[Position] = field(default_factory=set)

    def hear(self, said: bytes) -> None:
        for line in said.decode().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # the writer died in the middle of the line
            kind, *rest = line.split()
            if kind == "entry":
                self.entries[Position.parse(rest[1])] = int(rest[0])
            elif kind == "ack":
                self.acks.add(Position.parse(rest[0]))

    def check(self, directory: Path) -> int:
        """Opens the log, checks that everything printed is there, and returns how many entries there are."""
        log = Log.open(directory / "log", SETTINGS)
        reader = log.reader()
        found = list(reader.read(reader.first, log.end())) if log.end().entry_id >= 0 else []
        numbers = [int(bytes(entry.data).split(b":", 1)[0]) for entry in found]
        assert numbers == list(range(1, len(numbers) + 1)), f"a hole or a double: {numbers}"
        for entry, number in zip(found, numbers, strict=True):
            assert bytes(entry.data) == payload(number, int(bytes(entry.data).split(b":", 2)[1])), "other bytes"
        where = {entry.position: number for entry, number in zip(found, numbers, strict=True)}
        assert self.entries.items() <= where.items(), "an acknowledged entry is lost or moved"
        cursor = Cursor.open(reader, directory / "cursors", "c")
        assert all(cursor.is_acked(position) for position in self.acks), "a durable ack is lost"
        assert not any(cursor.is_acked(p) for p, number in where.items() if number % 3 == 0), "an ack of nobody"
        cursor.close()
        log.close()
        return len(found)


class Writer:
    """A forked writer: it starts in milliseconds, and dies as any process does."""

    def __init__(self, directory: Path, owner: int = 0, settings: LogSettings = SETTINGS) -> None:
        self.said = b""
        self._pipe, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self._pipe)
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, 2)
                write(directory, lambda text: void(os.write(theirs, text.encode())), owner=owner, settings=settings)
            except BaseException as error:
                with contextlib.suppress(OSError):
                    os.write(theirs, f"error {type(error).__name__} {error!r} {error.__cause__!r}\n".encode())
                code = 3
            finally:
                os._exit(code)
        os.close(theirs)

    def hear(self, lines: int) -> None:
        """Returns once the writer has printed so many lines, or is dead."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while self.said.count(b"\n") < lines:
            more = os.read(self._pipe, 1 << 16)
            if not more:
                return
            self.said += more
            assert time.monotonic() < deadline, "the writer does not go on"

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self, number: signal.Signals | None = signal.SIGKILL) -> bytes:
        """Everything that it printed, once it is dead."""
        if number is not None:
            self.send(number)
        while more := os.read(self._pipe, 1 << 16):
            self.said += more
        os.waitpid(self.pid, 0)
        os.close(self._pipe)
        return self.said


def void(_: object) -> None:
    """Drops the value of an expression, for callbacks that return nothing."""


class Mounted:
    """A mounted file system. Mounting needs root."""

    def __init__(self, place: Path, options: list[str]) -> None:
        self.place = place
        self._options = options
        place.mkdir(exist_ok=True)
        self.mount()

    def mount(self) -> None:
        privileged("mount", *self._options, str(self.place))
        if os.geteuid() != 0:
            privileged("chmod", "0777", str(self.place))

    def unmount(self) -> None:
        for _ in range(50):
            with contextlib.suppress(CannotMount):
                privileged("umount", str(self.place))
                return
            time.sleep(0.02)
        privileged("umount", "-l", str(self.place))

    def cut_power(self) -> None:
        """From here on nothing reaches the disk, not even the journal."""
        if os.geteuid() == 0:
            shut_down(self.place)
        else:
            privileged(sys.executable, "-m", "tests.crash.log.real_machine", "--cut-power", str(self.place))


def shut_down(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_FLUSH))
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def ext4(directory: Path, megabytes: int = 64) -> Iterator[Mounted]:
    image = directory / "disk"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,nodiscard", str(image))
    with _mounted(directory / "mnt", ["-o", "loop", str(image)]) as mounted:
        yield mounted


@contextlib.contextmanager
def tmpfs(directory: Path, options: str) -> Iterator[Mounted]:
    with _mounted(directory / "mnt", ["-t", "tmpfs", "-o", options, "tmpfs"]) as mounted:
        yield mounted


@contextlib.contextmanager
def _mounted(place: Path, options: list[str]) -> Iterator[Mounted]:
    mounted = Mounted(place, options)
    try:
        yield mounted
    finally:
        mounted.unmount()


class CannotMount(Exception):
    """This machine cannot mount file systems."""


class MayNotMount(CannotMount):
    """The user may not mount, or a tool is not installed: both can be changed."""


def run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, check=True, text=True)
    except FileNotFoundError as error:
        raise MayNotMount(f"{command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise CannotMount(f"{' '.join(command)}: {error.stderr.strip()}") from error


def privileged(*command: str) -> None:
    """As root: directly, or through a `sudo` that asks for no password."""
    if os.geteuid() == 0:
        run(*command)
        return
    try:
        run("sudo", "-n", "true")
    except CannotMount as error:
        raise MayNotMount("mounting a file system needs root, or sudo without a password") from error
    run("sudo", "-n", *command)


if __name__ == "__main__":
    if sys.argv[1] == "--cut-power":
        shut_down(Path(sys.argv[2]))
        sys.exit()
    write(
        Path(sys.argv[1]),
        lambda text: void((sys.stdout.write(text), sys.stdout.flush())),
        int(sys.argv[2]) if len(sys.argv) > 2 else None,
    )

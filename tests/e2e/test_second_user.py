"""A second user of the machine against a running flow: he reads nothing, stalls nothing and replaces nothing.

Every path below the state directory, every socket that a process of the flow listens at, and the names that the flow would
use are tried, before its start and while it runs. The state directory's path is long, which once led Spark's sockets and
native libraries to a name under /tmp that anybody could make first.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.files.socket_address import ADDRESS_BYTES_MAX
from tests.e2e.flow import PARTS, Flow, _descendants
from tests.support.second_user import as_second_user, become_second_user, can, needs_second_user, rights

pytestmark = [pytest.mark.spark, needs_second_user]
CHANGES = 600_000
RATE = 1_000
HELD_CONNECTIONS = 20  # at each port, left open while the flow goes on
_ANSWER_SECONDS_MAX = 3.0


@pytest.fixture(scope="module")
def flow() -> Iterator[Flow]:
    """A flow that runs, in a place that everybody can reach, with a path that is too long for a socket."""
    root = Path(tempfile.mkdtemp(prefix="second-user-"))
    umask = os.umask(0o022)
    try:
        root.chmod(0o755)
        directory = root / ("a long näme " * 9) / ("names-" * 20)
        made = Flow(
            directory,
            {"type": "demo", "seed": 3, "changes": CHANGES, "rate": RATE},
            {"lake": {"format": "parquet", "flush": {"size": "1MiB", "every": "1s"}}},
        )
        temporary = root / "tmp"
        temporary.mkdir()
        temporary.chmod(0o1777)
        as_second_user(lambda: plant(temporary, made.state_dir))
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TMPDIR", str(temporary))
                made.start(once=False)
            made.wait_for("the first rows", lambda status: status["rows"] > 0)
            yield made
        finally:
            made.kill()
    finally:
        os.umask(umask)
        shutil.rmtree(root)


def plant(temporary: Path, state_dir: Path) -> None:
    """Makes what earlier versions took as it was found, open for everybody, with a file where a socket would be."""
    for directory in (state_dir / "run", state_dir / "run" / "spark" / "tmp"):
        digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
        path = temporary / f"penstock-0-{digest}"
        path.mkdir()
        path.chmod(0o777)
        (path / "control.sock").touch()


def processes(flow: Flow) -> list[int]:
    assert flow.process is not None
    return [flow.process.pid, *_descendants(flow.process.pid)]


def everything(root: Path) -> list[Path]:
    return [root, *root.rglob("*")]


def listening_sockets(flow: Flow) -> tuple[dict[int, list[str]], list[str]]:
    """(TCP port → its addresses, Unix sockets by name) at which processes of the flow listen."""
    inodes = {
        target.removeprefix("socket:[").removesuffix("]")
        for pid in processes(flow)
        for target in _descriptors(pid)
        if target.startswith("socket:[")
    }
    ports: dict[int, list[str]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # listens
                address, port = fields[1].split(":")
                ports.setdefault(int(port, 16), []).append(address)
    unix = [
        fields[7]
        for fields in (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
        if len(fields) > 7 and fields[6] in inodes and int(fields[3], 16) & 0x10000  # listens
    ]
    return ports, unix


def _descriptors(pid: int) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(entry.path))  # noqa: PTH115
    return found


def goes_on(flow: Flow) -> None:
    """Returns once rows were delivered after this call, by the same processes as before it."""
    rows, restarts = flow.last["rows"], flow.last["restarts"]
    flow.wait_for("more rows", lambda status: status["rows"] > rows)
    assert flow.last["restarts"] == restarts


def test_he_can_do_nothing_to_any_file_or_directory(flow: Flow) -> None:
    paths = everything(flow.state_dir)
    assert len(paths) > 40
    assert {"lock", "run", "log"} <= {path.name for path in paths}
    found = as_second_user(lambda: {str(path): rights(path) for path in paths})
    assert {path: what for path, what in found.items() if what} == {str(flow.state_dir): ["look"]}
    goes_on(flow)


def test_the_modes_hold_by_themselves(flow: Flow) -> None:
    """Even where the way in were open: 0700 and 0600 on everything, of our user. Spark's sockets are behind 0700 alone."""
    wrong = []
    for path in everything(flow.state_dir):
        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
            found = path.lstat()
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                wrong.append(f"{stat.filemode(found.st_mode)} {found.st_uid} {path}")
    assert not wrong, "\n".join(wrong)


def test_he_can_hold_no_lock(flow: Flow) -> None:
    """Neither as it is, nor if he could go through the directories."""
    locks = [path for path in everything(flow.state_dir) if "lock" in path.name or path.name.endswith(("-shm", "-wal"))]
    assert len(locks) >= 4, locks
    ways = [path for path in everything(flow.state_dir) if path.is_dir()]
    assert as_second_user(lambda: [str(path) for path in locks if can(lambda path=path: hold(path))]) == []
    for way in ways:
        way.chmod(0o711)
    try:
        assert as_second_user(lambda: [str(path) for path in locks if can(lambda path=path: hold(path))]) == []
    finally:
        for way in ways:
            way.chmod(0o700)
    goes_on(flow)


def hold(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(descriptor)


def test_every_unix_socket_is_in_the_private_directory(flow: Flow) -> None:
    _, unix = listening_sockets(flow)
    assert len(unix) >= 3, "control, delivery and Spark's own"
    descriptors = tuple(f"/proc/{pid}/fd/" for pid in processes(flow))
    assert all(name.startswith(descriptors) for name in unix), unix
    private = {path.name: path for path in everything(flow.state_dir / "run") if path.is_socket()}
    assert {"control.sock", "delivery.sock"} <= set(private)
    sparks = [Path(name).parent for name in unix if Path(name).name not in ("control.sock", "delivery.sock")]
    assert {path.resolve() for path in sparks} == {flow.state_dir / "run" / "spark" / "tmp"}
    tried = [*unix, *map(str, private.values())]
    assert as_second_user(lambda: [name for name in tried if can(lambda name=name: connect_unix(name))]) == []


def connect_unix(name: str) -> None:
    """By its name, or through the directory's descriptor where the name is too long."""
    with socket.socket(socket.AF_UNIX) as connection:
        if len(name) > ADDRESS_BYTES_MAX:
            directory = os.open(Path(name).parent, os.O_RDONLY)
            name = f"/proc/self/fd/{directory}/{Path(name).name}"
        connection.connect(name)


# What he says at each port, knowing its protocol but no token: as Java's gateway and as the callbacks of Python want it.
WORDS = {
    "py4j: make a file": b"c\nz:java.nio.file.Files\ncreateTempFile\nsx\nsy\ne\n",
    "py4j: a wrong token": b"A\nguessed\ne\n",
    "py4j: forget the callback": b"g\np0\ne\n",
    "py4j: call the callback": b"c\np0\ncall\ne\n",
    "py4j: shut down": b"s\ne\n",
    "spark: a frame": bytes([0, 0, 0, 0, 0, 0, 0, 32, 3]) + b"\0" * 64,
    "nonsense": b"\xff" * 512 + b"\n\n\n",
    "web": b"GET / HTTP/1.0\r\n\r\n",
}


def test_every_port_is_on_loopback_and_gives_him_no_answer(flow: Flow) -> None:
    ports, _ = listening_sockets(flow)
    assert ports, "Spark and py4j listen"
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert {address for addresses in ports.values() for address in addresses} <= loopback
    answers = as_second_user(
        lambda: {f"{port} {what}": say(port, words) for port in ports for what, words in WORDS.items()}
    )
    assert not {what: answer for what, answer in answers.items() if not is_refusal(answer)}
    goes_on(flow)


def is_refusal(answer: str) -> bool:
    """Nothing, an error of py4j (`!x`, `!z`; a success is `!y`), or Spark's demand for its secret."""
    return answer == "" or answer.startswith(("!x", "!z")) or "Expected SaslMessage" in answer


def say(port: int, words: bytes) -> str:
    with connect_port(port) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(words)
            return connection.recv(4096).decode(errors="replace").strip()
        return ""


def connect_port(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS_MAX)


def test_connections_that_he_leaves_open_stall_nothing(flow: Flow) -> None:
    ports, _ = listening_sockets(flow)
    reading, writing = os.pipe()
    held = os.fork()
    if held == 0:
        try:
            os.close(writing)
            become_second_user()
            kept = [connect_port(port) for port in ports for _ in range(HELD_CONNECTIONS)]
            os.read(reading, 1)
            os._exit(len(kept) != HELD_CONNECTIONS * len(ports))
        finally:
            os._exit(1)
    os.close(reading)
    try:
        for _ in range(3):
            goes_on(flow)
    finally:
        os.close(writing)
        assert os.waitpid(held, 0)[1] == 0


def test_nothing_of_the_flow_is_elsewhere(flow: Flow) -> None:
    """No file of any of its processes is open outside of its directories, or lies in the system's temporary directory, but
    those of an installation that somebody made there."""
    own = (f"{flow.directory}/", f"{sys.prefix}/", f"{Path(penstock.__file__).parent}/")
    outside = {
        target
        for pid in processes(flow)
        for target in _descriptors(pid)
        if target.startswith(("/tmp/", "/dev/shm/", "/run/")) and not target.startswith(own)
    }
    assert not outside
    temporary = flow.directory.parents[1] / "tmp"
    assert set(temporary.parent.iterdir()) == {temporary, flow.directory.parent}, (
        "no directory of a name that looks alike"
    )
    assert len(list(temporary.iterdir())) == 2, "what he made, and nothing of the flow"
    assert {path.name for path in temporary.glob("*/*")} == {"control.sock"}, "what he made first was not used"
    by_process = [path for pid in processes(flow) for path in Path("/tmp").glob(f"hsperfdata_*/{pid}")]
    assert not by_process, "Java's figures"


def test_he_learns_nothing_from_the_processes(flow: Flow) -> None:
    """Their memory, environment and open files are closed to him by the system; nothing of ours opens them."""
    pids = processes(flow)
    assert {flow.pid(part) for part in PARTS} <= set(pids)
    attempts: dict[str, Callable[[str], Any]] = {
        "environ": lambda pid: os.open(f"/proc/{pid}/environ", os.O_RDONLY),
        "memory": lambda pid: os.open(f"/proc/{pid}/mem", os.O_RDONLY),
        "descriptors": lambda pid: os.listdir(f"/proc/{pid}/fd"),
    }
    found = as_second_user(
        lambda: [(pid, what) for pid in pids for what, attempt in attempts.items() if can(lambda: attempt(str(pid)))]  # noqa: B023
    )
    assert found == []


def test_afterwards_only_the_logs_are_left(flow: Flow) -> None:
    """The last test: it ends the flow."""
    flow.interrupt()
    flow.finish()
    run = flow.state_dir / "run"
    left = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if not path.is_dir())
    assert left == ["capture.log", "delivery.log", "driver.log", "spark/spark.log"]
    lake = flow.directory / "lake"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in lake.rglob("*.parquet")}
    assert modes == {0o640}, "what is delivered follows the user's umask"
    assert stat.S_IMODE((lake / "_penstock" / "lock").stat().st_mode) == 0o600

"""The workers' parent that waits: who takes it, what it takes over, and how both end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.jvm.workers_ahead import AHEAD, VARIABLE, WorkersAhead, hand_over
from tests.support.waiting import LIMIT_SECONDS

# What waits: a process that writes what it has taken over into the standard output that it was given.
_WAITS = """
import os, socket, sys
from penstock.process import end_with_parent
end_with_parent()
from penstock.spark.jvm import workers_ahead
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(1)
print("waits", flush=True)
workers_ahead.wait_to_be_taken(server.detach())
print(os.getpid(), os.environ.get("OF_SPARK"), os.environ.get("OWN"), "/of/spark" in sys.path, flush=True)
sys.stderr.write("to stderr"); sys.stderr.flush()
sys.stdin.read()
"""
_TAKES = """
import sys
sys.argv = ["daemon", "pyspark.worker"]
sys.path.append("/of/spark")
{more}
from penstock.spark.jvm.workers_ahead import hand_over
print("handed over" if hand_over() else "alone", flush=True)
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    address = str(tmp_path / "w")
    process = subprocess.Popen(
        [sys.executable, "-c", _WAITS, address], stdout=subprocess.PIPE, env={**os.environ, "OWN": "1"}
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"waits\n"
    yield process, address
    process.kill()
    process.wait()


def taking(address: str, more: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _TAKES.format(more=more)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, VARIABLE: address, "OF_SPARK": "2"},
    )


def test_one_whose_driver_died_before_it_could_look_ends(tmp_path: Path) -> None:
    """It would wait for ever: the soak of kills left one behind at every thirtieth kill."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "w"))
        server.listen(1)
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        number = server.fileno()
        waits = subprocess.Popen(
            [sys.executable, "-m", "penstock.spark.daemon", "pyspark.worker", AHEAD, str(number), str(dead.pid)],
            pass_fds=(number,),
        )
        try:
            assert waits.wait(LIMIT_SECONDS) != 0
        finally:
            waits.kill()


def test_it_takes_over_the_standard_streams_the_environment_and_the_path(
    waiting: tuple[subprocess.Popen[bytes], str],
) -> None:
    process, address = waiting
    spark_started = taking(address)
    assert spark_started.stdout is not None and spark_started.stdin is not None and spark_started.stderr is not None
    assert spark_started.stdout.readline().split() == [str(process.pid).encode(), b"2", b"None", b"True"]
    assert spark_started.poll() is None, "Spark's own process stays as long as the other one"
    spark_started.stdin.close()  # as Spark does at its end
    assert process.wait(LIMIT_SECONDS) == 0
    assert spark_started.wait(LIMIT_SECONDS) == 0
    assert spark_started.stderr.read() == b"to stderr"
    assert not Path(address).exists(), "it is taken once"
    second = taking(address)
    assert second.communicate(timeout=LIMIT_SECONDS)[0] == b"alone\n"


def test_a_request_to_end_is_passed_on(waiting: tuple[subprocess.Popen[bytes], str]) -> None:
    process, address = waiting
    spark_started = taking(address)
    assert spark_started.stdout is not None
    assert spark_started.stdout.readline()
    spark_started.terminate()
    assert process.wait(LIMIT_SECONDS) == -signal.SIGTERM
    assert spark_started.wait(LIMIT_SECONDS) == 0


def test_another_python_is_not_served(waiting: tuple[subprocess.Popen[bytes], str]) -> None:
    process, address = waiting
    other = taking(address, 'sys.executable = "/usr/bin/another"')
    assert other.communicate(timeout=LIMIT_SECONDS)[0] == b"alone\n"
    assert process.wait(LIMIT_SECONDS) == 0


def test_one_that_died_while_it_waited_is_not_waited_for(waiting: tuple[subprocess.Popen[bytes], str]) -> None:
    process, address = waiting
    process.send_signal(signal.SIGSTOP)  # so that the connection is made, and not accepted
    spark_started = taking(address)
    assert spark_started.stdout is not None
    process.kill()
    assert spark_started.communicate(timeout=LIMIT_SECONDS)[0] == b"alone\n"


def test_without_a_name_there_is_nobody() -> None:
    assert not hand_over({})


def test_one_that_is_not_wanted_any_more_is_killed(tmp_path: Path) -> None:
    ahead = WorkersAhead(tmp_path)
    ahead.start()
    process = ahead._process
    assert process is not None
    assert AHEAD in process.args  # type: ignore[operator]
    ahead.end()
    assert process.returncode == -signal.SIGKILL


_JOB = """
import os, sys
from pathlib import Path
from penstock.spark.jvm.engine import Engine
from penstock.spark.jvm.launch import Launch

def parents(_items):
    yield os.getppid()

launch = Launch(Path(sys.argv[1]), workers_ahead=True)
engine = Engine(launch.context())
first = engine.run("first", [1, 2], parents)
print(set(first) == {launch._workers._process.pid})
os.kill(first[0], 9)
launch._workers._process.wait()
again = engine.run("again", [1, 2], parents)
print(set(again) != set(first) and len(set(again)) == 1)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.spark
def test_sparks_workers_are_forked_from_it_and_from_a_new_one_if_it_dies(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _JOB, str(tmp_path)], capture_output=True, timeout=LIMIT_SECONDS, check=True
    )
    assert done.stdout.split() == [b"True", b"True"], done.stderr.decode()[-2000:]

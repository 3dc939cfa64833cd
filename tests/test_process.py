"""How a child process reads its settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from penstock.errors import BadInput
from penstock.process import EXIT_TRY_AGAIN, parse_settings, read_document
from tests.support.waiting import LIMIT_SECONDS, wait_until


def document_from(*writes: bytes, end: bool = True) -> dict[str, object]:
    reader, writer = os.pipe()
    try:
        for data in writes:
            os.write(writer, data)
        if end:
            os.close(writer)
        return read_document(reader)
    finally:
        os.close(reader)
        if not end:
            os.close(writer)


def test_the_settings_are_read_while_the_input_stays_open() -> None:
    value = {"a": 1, "b": "zwölf"}
    assert document_from(json.dumps(value).encode() + b"\n", end=False) == value
    assert document_from(json.dumps(value).encode() + b"\nmore\n", end=False) == value


def test_the_last_line_needs_no_end_of_line() -> None:
    assert document_from(b'{"a":', b" 1}") == {"a": 1}


@pytest.mark.parametrize("text", [b"[1]\n", b"nonsense\n", b'{"a": \n', b"\n"])
def test_anything_else_is_refused_at_once_while_the_input_stays_open(text: bytes) -> None:
    with pytest.raises(BadInput, match="not one JSON object"):
        document_from(text, end=False)


def test_no_settings_at_all_are_refused() -> None:
    with pytest.raises(BadInput, match="not one JSON object"):
        document_from(b"")


def test_sigterm_ends_a_child_that_still_waits_for_its_settings() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "from penstock.process import ChildProcess as C; C('test').read_settings()"],
        stdin=subprocess.PIPE,
    )
    try:
        wait_until(lambda: _ignores_interrupts(child.pid), "child with its handlers set")
        child.terminate()
        assert child.wait(LIMIT_SECONDS) == -signal.SIGTERM
    finally:
        child.kill()
        child.communicate()


_DIES_AT_ONCE = """
import os, subprocess, sys
from penstock.supervisor.child import bound
reading, writing = os.pipe()
command = bound([sys.executable, "-c", "import time; time.sleep(600)"])
child = subprocess.Popen(command, stdin=reading, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid)
"""


THREADS = """
import sys, threading
from penstock.process import ChildProcess
child = ChildProcess("test")
if sys.argv[1] == "with":
    child.end_with_threads()
def fail(error):
    raise error
for error in (SystemExit(3), KeyError("gone")):
    thread = threading.Thread(target=fail, args=(error,), name="spill-lake")
    thread.start()
    thread.join()
child.say({"event": "went on"})
"""


@pytest.mark.parametrize("ends", [True, False])
def test_a_child_ends_with_a_thread_that_fails(ends: bool) -> None:
    child = subprocess.run(
        [sys.executable, "-c", THREADS, "with" if ends else "without"], capture_output=True, text=True, check=False
    )
    said = [json.loads(line) for line in child.stdout.splitlines()]
    assert "in fail" in child.stderr  # where it was, for whoever mends it
    if ends:
        assert child.returncode == EXIT_TRY_AGAIN
        assert [(one["event"], one["message"]) for one in said] == [("error", "spill-lake ended: KeyError: 'gone'")]
    else:
        assert child.returncode == 0 and said == [{"event": "went on"}]


def test_a_child_ends_with_a_parent_that_dies_before_the_child_has_begun() -> None:
    """It would be a process of init that nobody stops: its input stays open where a forked process holds the other end."""
    done = subprocess.run([sys.executable, "-c", _DIES_AT_ONCE], capture_output=True, check=True, timeout=LIMIT_SECONDS)
    wait_until(lambda: not Path(f"/proc/{int(done.stdout)}").exists(), "a child that is gone")


_SAYS_A_SECRET = """
from penstock.process import ChildProcess
from penstock.secret import Secret
Secret("shop")
ChildProcess("test").say({"event": "error", "message": "no shop here", "changefeed": "shop"})
"""


def test_what_people_read_of_an_event_has_no_secret_and_the_rest_is_as_it_was() -> None:
    """A sink may have the name that is the password, too: the run must find it again."""
    said = subprocess.run([sys.executable, "-c", _SAYS_A_SECRET], capture_output=True, check=True).stdout
    assert json.loads(said) == {"event": "error", "message": "no *** here", "changefeed": "shop"}


def _ignores_interrupts(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1]
    return bool(int(ignored, 16) >> (signal.SIGINT - 1) & 1)


@pytest.mark.parametrize("module", ["penstock.delivery.process", "penstock.cli.main", "penstock.spark.runs"])
def test_processes_do_not_load_what_they_do_not_need(module: str) -> None:
    """Each import costs every start: only capture and Spark's workers need kernels, only workers and `verify` need Arrow."""
    program = f"import sys, {module}; print({{'numba', 'pyarrow', 'pandas', 'pyspark'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=LIMIT_SECONDS)
    assert done.stdout.strip() == b"set()"


def test_a_wrong_setting_is_named_and_its_value_is_not() -> None:
    class Settings(BaseModel):
        password: SecretStr

    with pytest.raises(BadInput, match="capture's settings: password: ") as caught:
        parse_settings(Settings, {"password": ["hunter2"]}, "capture")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None

"""A child process of `penstock run`, seen from inside: how it gets its settings, speaks, and ends.

capture, delivery and the driver are such children. The protocol between one of them and its parent
(`penstock.supervisor.child` is the parent's side):

1. **Settings.** The first line of standard input is one JSON object, the settings. (Not arguments: everybody on the machine can
   read those, and settings hold secrets.) Standard input then stays open: each further line is a request, a JSON
   object with `request`, its number, and `op`. The child answers it by an event `answer` with the same number and either
   `result` or `error`. Only capture has requests to answer; others pass over them.
2. **Stop.** The end of standard input asks the child to stop, as SIGTERM does; before the settings are there, SIGTERM
   ends it at once. SIGINT is ignored: the parent decides in which order its children stop.
3. **Events.** Each line of standard output is a JSON object with its name under `event` (`Event`). Everything else that
   the process or a library prints goes to standard error, and so do log lines.
4. **Errors.** An `error` event has `kind` (a class of `penstock.errors`), `message` and `hint`. The process ends after
   it, with one of the exit codes below; only the driver goes on where the error stopped one of several changefeeds.
5. **Rights.** What the child makes is for its user alone, whatever the umask was that it inherited. A crash leaves no core
   dump, which would have the secrets of the settings in it.
6. **Parent's death.** The child ends at once when its parent process is gone, however that happened. Nothing is lost:
   every file is safe at every moment, and the next run goes on from the log.
7. **Threads.** A thread of capture or delivery that ends by an exception which nobody expected takes the process with it
   (`end_with_threads`): what the thread did would not be done any more, and nobody would see it. The parent starts
   the child again.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import signal
import sys
import threading
import traceback
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import BadInput, PenstockError, Terminal
from penstock.files.private import no_core_dumps, private_umask
from penstock.observe.logging import configure, redact

if TYPE_CHECKING:
    from pydantic import BaseModel  # imported late: Spark's planning and worker processes import this module, too

# Exit codes of every command and of every child; each has one meaning (docs/cli.md).
EXIT_OK = 0
EXIT_DIFFERENT = 1  # the command did its work, and the answer is no: not equal, damaged, degraded, not there
EXIT_CONFIGURATION = 2
EXIT_SOURCE = 3
EXIT_SINK = 4
EXIT_STOPPED = 5  # `status`: no run owns the state directory
EXIT_LEFT = 6  # `run`: stopped as it was asked to, with changes in the log that are not at a sink
EXIT_HELD_BACK = 7  # `verify`: nothing differs of what was compared, and not all of it is there or could be compared
EXIT_FAILED = 70  # none of the others, and time does not heal it: the disk, another owner, a mistake in Penstock
EXIT_TRY_AGAIN = 75  # nothing is wrong that time does not heal
EXIT_INTERRUPTED = 130  # Ctrl-C, where that is not the usual end
EXIT_NO_READER = 141  # what a shell says of a program that SIGPIPE ended
EXIT_CODES = {
    EXIT_OK: "done; healthy; equal",
    EXIT_DIFFERENT: "done, and the answer is no: not equal, damaged, degraded, not there",
    EXIT_CONFIGURATION: "the command line or the configuration is wrong; nothing was changed",
    EXIT_SOURCE: "the source refuses, or logs what Penstock cannot read",
    EXIT_SINK: "a sink refuses",
    EXIT_STOPPED: "status: the flow is stopped",
    EXIT_LEFT: "run: stopped before everything was at the sinks; nothing is lost, the next run goes on there",
    EXIT_HELD_BACK: "verify: nothing differs, but rows are held back, not delivered, or could not be compared",
    EXIT_FAILED: "failed for another reason, which the message names",
    EXIT_TRY_AGAIN: "does not answer now, or another process has it: try again later",
    EXIT_INTERRUPTED: "ended by Ctrl-C",
    EXIT_NO_READER: "nobody reads the output any more: a pipe into `head`, say",
}
_EXIT_PARENT_DIED = 1  # nobody is left to read it
_FOR_PEOPLE = (
    "message",
    "hint",
)  # of an event: no secret stands here; the rest is for the run, which needs it as it is

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_PARENT_DIED = signal.SIGUSR2

Model = TypeVar("Model", bound="BaseModel")


class Event(StrEnum):
    """Names of the events on standard output."""

    READY = "ready"  # once; the child can do its work
    PROGRESS = "progress"  # figures; at most about once a second
    RETRYING = "retrying"  # capture: the source does not answer, it is asked again
    RESTART = "restart"  # driver: a changefeed's run begins again
    CAUGHT_UP = "caught-up"  # capture with `until: now`, with `log_end`: where the log ended then
    STOPPED = "stopped"  # delivery, with `drained`: everything published is at the sinks
    ANSWER = "answer"  # with `request`, and `result` or `error`: to a line on standard input
    ERROR = "error"  # with `kind`, `message` and `hint`


class ChildProcess:
    """This process as a child. Made once, at the start of `main`, by the main thread.

    `stop` is set once the process is asked to stop; `requests` has what the parent asked since the settings.
    """

    def __init__(self, name: str) -> None:
        end_with_parent()
        private_umask()
        no_core_dumps()
        configure(name)
        self.stop = threading.Event()
        self.requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever it inherited: nothing is open yet
        self.ignore_interrupts()
        self._lock = threading.Lock()
        # The events get standard output for themselves; what anybody else writes there (the JVM, a stray print) goes to
        # standard error.
        self._output = os.dup(1)  # never inherited by processes that this one starts
        os.dup2(2, 1)

    def read_settings(self) -> dict[str, Any]:
        """The settings. From here on the end of standard input sets `stop`."""
        document = read_document(sys.stdin.fileno())
        signal.signal(signal.SIGTERM, lambda _number, _frame: self.stop.set())
        threading.Thread(target=self._wait_for_end_of_input, name="stdin", daemon=True).start()
        return document

    def ignore_interrupts(self) -> None:
        """Again after a library that sets a handler of its own, as PySpark's session does."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_threads(self) -> None:
        """From here on an exception that no thread has caught ends the process, after an `error` event."""
        threading.excepthook = self._thread_failed

    def _thread_failed(self, failed: threading.ExceptHookArgs) -> None:
        if failed.exc_type is SystemExit:
            return
        traceback.print_exception(failed.exc_type, failed.exc_value, failed.exc_traceback)
        name = failed.thread.name if failed.thread else "a thread"
        self.say_error(Terminal(f"{name} ended: {failed.exc_type.__name__}: {failed.exc_value}"))
        os._exit(EXIT_TRY_AGAIN)

    def say(self, event: dict[str, Any]) -> None:
        """Writes one event. Thread-safe. That nobody listens any more is no reason to fail: the log is what counts."""
        shown = {name: redact(event[name]) for name in _FOR_PEOPLE if name in event}
        line = memoryview(json.dumps({**event, **shown}).encode() + b"\n")
        with self._lock, contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._output, line) :]

    def say_error(self, error: PenstockError, **more: Any) -> None:
        self.say({"event": Event.ERROR, **error.to_json(), **more})

    def _wait_for_end_of_input(self) -> None:
        # Not through `sys.stdin`: a thread that holds its lock disturbs the end of the interpreter.
        text = b""
        while more := os.read(sys.stdin.fileno(), 1 << 16):
            *lines, text = (text + more).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    request = json.loads(line)
                    if isinstance(request, dict):
                        self.requests.put(request)
        self.stop.set()


def read_document(descriptor: int) -> dict[str, Any]:
    """The JSON object on the first line of a stream that stays open."""
    with contextlib.suppress(ValueError):
        value = json.loads(_first_line(descriptor))
        if isinstance(value, dict):
            return value
    raise BadInput("the settings on standard input are not one JSON object on one line")


def parse_settings(model: type[Model], document: dict[str, Any], name: str) -> Model:
    """`document` as `model`. Raises `BadInput` that names the first setting that is wrong."""
    from pydantic import ValidationError

    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{name}'s settings: {where}: {first['msg']}") from None


def _first_line(descriptor: int) -> bytes:
    """Reads without a buffer of Python's, which could keep back the end of the input from `_wait_for_end_of_input`."""
    text = b""
    while b"\n" not in text and (more := os.read(descriptor, 1 << 16)):
        text += more
    return text.partition(b"\n")[0]


def end_with_parent() -> None:
    """Ends this process when its parent process is gone. Called before anything slow is imported, because a parent that is
    gone by then was never seen; `penstock.supervisor.child.bound` leaves not even that gap.

    The kernel sends the death signal when the *thread* that started us ends, so the handler looks whether the parent
    process is gone. A death signal that was set before this program began stays as it is: `penstock.supervisor.child`
    sets SIGKILL for its children.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    asked = ctypes.c_int(0)
    if libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(asked), 0, 0, 0) == 0 and asked.value:
        return

    def parent_died(_signal: int, _frame: object) -> None:
        if os.getppid() != parent:
            os._exit(_EXIT_PARENT_DIED)

    signal.signal(_PARENT_DIED, parent_died)
    libc.prctl(_PR_SET_PDEATHSIG, int(_PARENT_DIED), 0, 0, 0)
    parent_died(0, None)  # the parent may have died before prctl

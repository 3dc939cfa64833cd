"""A child process of `penstock run`, seen from inside: how it gets its settings, speaks, and ends.

capture, delivery and the driver are such children. The protocol between one of them and its parent
(`penstock.supervisor.child` is the parent's side):

1. **Settings.** The first line of standard input is one JSON object, the settings. (Not arguments: everybody on the machine can
   read those, and settings hold secrets.) Standard input then stays open: each further line is a request, a JSON
   object with `request`, its number, and `op`. The child answers it by an event `answer` with the same number and either
   `result` or `error` (`Requests`).
2. **Stop.** The end of standard input asks the child to stop, as SIGTERM does; before the settings are there, SIGTERM
   ends it at once. SIGINT is ignored: the parent decides in which order its children stop.
3. **Events.** Each line of standard output is a JSON object with its name under `event` (`Event`). Everything else that
   the process or a library prints goes to standard error, and so do log lines.
4. **Errors.** An `error` event has `kind` (a class of `penstock.errors`), `message` and `hint`. The process ends after
   it, with one of the exit codes below. An error that stops one changefeed alone is a `failed` event of the driver, with
   the exit code that it is worth; the process goes on with the others.
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
import gc
import json
import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
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

METRICS_SECONDS = 10.0
_LOOK_SECONDS = 0.25  # between two looks whether the process is to stop, while it waits for requests

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_PARENT_DIED = signal.SIGUSR2

Model = TypeVar("Model", bound="BaseModel")


class Event(StrEnum):
    """Names of the events on standard output."""

    READY = "ready"  # once; the child can do its work
    PROGRESS = "progress"  # figures; at most about once a second
    RETRYING = "retrying"  # capture: the source does not answer, it is asked again
    RESTART = "restart"  # driver: a changefeed's run begins again
    FAILED = "failed"  # driver, with `changefeed`, `code`, `kind`, `message` and `hint`: it stands still, others go on
    CAUGHT_UP = "caught-up"  # capture with `until: now`, with `log_end`: where the log ended then
    STOPPED = "stopped"  # delivery, with `drained`: everything published is at the sinks
    ANSWER = "answer"  # with `request`, and `result` or `error`: to a line on standard input
    METRICS = "metrics"  # with `text`, for Prometheus; every few seconds
    ERROR = "error"  # with `kind`, `message` and `hint`


Handler = Callable[[dict[str, Any]], dict[str, Any]]
"""A request → what is answered, once what was asked for is done."""


class Requests:
    """The requests that wait. Each is answered once, by the thread that calls `answer`."""

    def __init__(self, waiting: queue.SimpleQueue[dict[str, Any]], say: Callable[[dict[str, Any]], None]) -> None:
        self._waiting = waiting
        self._say = say

    @property
    def waiting(self) -> bool:
        return not self._waiting.empty()

    def answer(self, handlers: Mapping[str, Handler], wait_seconds: float = 0.0) -> None:
        """Answers all that wait; the first may take `wait_seconds` to come. An error of Penstock's own is the answer; the
        process goes on."""
        while True:
            try:
                request = self._waiting.get(block=wait_seconds > 0, timeout=wait_seconds or None)
            except queue.Empty:
                return
            wait_seconds = 0.0
            number = request.get("request")
            try:
                handler = handlers.get(str(request.get("op")))
                if handler is None:
                    raise BadInput(f"this process knows no request {request.get('op')!r}")
                result = handler(request)
            except PenstockError as error:
                self._say({"event": Event.ANSWER, "request": number, "error": error.to_json()})
            else:
                self._say({"event": Event.ANSWER, "request": number, "result": result})


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

    def answer_until_stop(self, handlers: Mapping[str, Handler]) -> None:
        """Answers the parent's requests, one after the other, until the process is asked to stop."""
        requests = Requests(self.requests, self.say)
        while not self.stop.is_set():
            requests.answer(handlers, _LOOK_SECONDS)

    def say(self, event: dict[str, Any]) -> None:
        """Writes one event. Thread-safe. That nobody listens any more is no reason to fail: the log is what counts."""
        shown = {name: redact(event[name]) for name in _FOR_PEOPLE if name in event}
        line = memoryview(json.dumps({**event, **shown}).encode() + b"\n")
        with self._lock, contextlib.suppress(BrokenPipeError):
            while line:
                line = line[os.write(self._output, line) :]

    def report_metrics(self, every_seconds: float = METRICS_SECONDS) -> None:
        """From here on says this process's metrics every few seconds, on a thread of its own."""
        threading.Thread(target=self._say_metrics, args=(every_seconds,), name="metrics", daemon=True).start()

    def _say_metrics(self, every_seconds: float) -> None:
        from penstock.observe.metrics import METRICS

        while True:
            try:
                self.say({"event": Event.METRICS, "text": METRICS.render().decode()})
            except Exception:  # figures are not worth a process, whatever is wrong with them
                logging.getLogger(__name__).exception("the metrics cannot be rendered")
            if self.stop.wait(every_seconds):
                return

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


def end_with_parent(parent: int | None = None) -> None:
    """Ends this process when its parent process is gone. Called before anything slow is imported, because a parent that is
    gone by then was never seen, unless its number is given; `penstock.supervisor.child.bound` leaves not even that gap.

    The kernel sends the death signal when the *thread* that started us ends, so the handler looks whether the parent
    process is gone. A death signal that was set before this program began stays as it is: `penstock.supervisor.child`
    sets SIGKILL for its children.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = parent or os.getppid()
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


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """For the imports of a start: what they make stays, so nobody looks for garbage among it, now or later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def stay_after_parent() -> None:
    """Undoes `end_with_parent`: this process has another way to see that it is not needed any more."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)

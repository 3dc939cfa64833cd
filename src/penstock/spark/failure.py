"""Errors on their way through Spark.

A task returns its `PenstockError` inside its manifest, as one line of JSON, which also says which part of the flow the
error concerns: that decides the exit code (2 configuration, 3 source, 4 sink). Any other exception of a Python worker
reaches the driver as a Java exception whose message holds a Python traceback; a user gets its last line, not the stack.
"""

from __future__ import annotations

import json
from typing import Literal

from penstock.errors import PenstockError, Terminal, Unavailable, error_from_json
from penstock.process import EXIT_CONFIGURATION, EXIT_SINK, EXIT_SOURCE, EXIT_TRY_AGAIN

_MESSAGE_CHARS_MAX = 1000
_STARTED_TOO_LATE = "Python worker failed to connect back"  # in Spark's words
_NO_ROOM = ("No space left on device", "Disk quota exceeded")  # in the system's, of Java and Python alike
Where = Literal["config", "source", "sink"]
_EXIT: dict[Where, int] = {"config": EXIT_CONFIGURATION, "source": EXIT_SOURCE, "sink": EXIT_SINK}


class PipelineFailure(Exception):
    """A `PenstockError` that ends a run. `begin_again`: a new run may help, although the error is terminal."""

    def __init__(self, error: PenstockError, where: Where, *, begin_again: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.where = where
        self.begin_again = begin_again


def error_to_text(error: PenstockError, where: Where) -> str:
    """One line of JSON."""
    return json.dumps({**error.to_json(), "where": where})


def failure_from_text(text: str) -> PipelineFailure:
    value = json.loads(text)
    where: Where = next(known for known in _EXIT if known == value["where"])
    return PipelineFailure(error_from_json(value), where)


def unexpected_error(text: str) -> PenstockError:
    """Any other exception of Spark in one line: the last exception line of a Python traceback in it, or its first line.
    Spark gives a Python process only seconds to start: one that took longer, on a busy machine, may do better next time. So
    may one for whose files the disk of the state directory had no room."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _looks_like_exception(line)]
    message = (python[-1:] or lines or ["Spark ended without a reason"])[0][:_MESSAGE_CHARS_MAX]
    if any(words in text for words in _NO_ROOM):
        return Unavailable(message, hint="make room on the disk of state_dir; it is tried again by itself")
    return Unavailable(message) if _STARTED_TOO_LATE in text else Terminal(message)


def exit_code(error: PenstockError, where: Where) -> int:
    return EXIT_TRY_AGAIN if error.transient else _EXIT[where]


def _looks_like_exception(line: str) -> bool:
    name, _, _ = line.partition(":")
    return name.rpartition(".")[2].endswith(("Error", "Exception")) and " " not in name and not name.startswith("org.")

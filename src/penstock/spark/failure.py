"""Errors on their way through Spark.

An exception of a Python worker reaches the driver as a Java exception whose message holds a Python traceback. So that a
user gets the error's sentence and not the stack, `PipelineFailure` writes the error into its text as one line of JSON
behind a marker, and `find_failure` finds it again in the driver. The line also says which part of the flow the error
concerns, which decides the exit code (2 configuration, 3 source, 4 sink).
"""

from __future__ import annotations

import json
from typing import Any, Literal

from penstock.errors import PenstockError, Terminal, Unavailable, error_from_json
from penstock.process import EXIT_CONFIGURATION, EXIT_SINK, EXIT_SOURCE, EXIT_TRY_AGAIN

_MARK = "PENSTOCK-ERROR "
_MESSAGE_CHARS_MAX = 1000
_STARTED_TOO_LATE = "Python worker failed to connect back"  # in Spark's words
Where = Literal["config", "source", "sink"]
_EXIT: dict[Where, int] = {"config": EXIT_CONFIGURATION, "source": EXIT_SOURCE, "sink": EXIT_SINK}


class PipelineFailure(Exception):
    """A `PenstockError` on its way through Spark. `begin_again`: a new run may help, although the error is terminal."""

    def __init__(self, error: PenstockError, where: Where, *, begin_again: bool = False) -> None:
        super().__init__(_MARK + error_to_text(error, where))
        self.error = error
        self.where = where
        self.begin_again = begin_again

    def __reduce__(self) -> tuple[Any, ...]:
        return PipelineFailure, (self.error, self.where)


def error_to_text(error: PenstockError, where: Where) -> str:
    """One line of JSON."""
    return json.dumps({**error.to_json(), "where": where})


def failure_from_text(text: str) -> PipelineFailure:
    return _from_value(json.loads(text))


def find_failure(text: str) -> PipelineFailure | None:
    """The marked error in an exception's text; None where the exception carries no `PenstockError`."""
    at = text.find(_MARK)
    while at >= 0:
        try:
            value, _ = json.JSONDecoder().raw_decode(text, at + len(_MARK))
            return _from_value(value)
        except (ValueError, KeyError, TypeError, StopIteration):
            at = text.find(_MARK, at + 1)
    return None


def unexpected_error(text: str) -> PenstockError:
    """Any other exception of Spark in one line: the last exception line of a Python traceback in it, or its first line.
    Spark gives a Python process only seconds to start: one that took longer, on a busy machine, may do better next time."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _looks_like_exception(line)]
    message = (python[-1:] or lines or ["Spark ended without a reason"])[0][:_MESSAGE_CHARS_MAX]
    return Unavailable(message) if _STARTED_TOO_LATE in text else Terminal(message)


def exit_code(error: PenstockError, where: Where) -> int:
    return EXIT_TRY_AGAIN if error.transient else _EXIT[where]


def _looks_like_exception(line: str) -> bool:
    name, _, _ = line.partition(":")
    return name.rpartition(".")[2].endswith(("Error", "Exception")) and " " not in name and not name.startswith("org.")


def _from_value(value: dict[str, str]) -> PipelineFailure:
    where: Where = next(known for known in _EXIT if known == value["where"])
    return PipelineFailure(error_from_json(value), where)

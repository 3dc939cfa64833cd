"""Errors on their way through Spark.

What a Python worker raises reaches the driver as a Java exception whose message holds a Python traceback. So that a user
gets the sentence and not the stack, an error is written as one line of JSON behind a marker, and found again here. It
also says at which end of the pipe it happened, which decides the exit code (2 configuration, 3 source, 4 sink).
"""

from __future__ import annotations

import json
from typing import Any, Literal

from penstock.errors import PenstockError, Terminal, error_from_json
from penstock.process import EXIT_CONFIGURATION, EXIT_SINK, EXIT_SOURCE, EXIT_TRY_AGAIN

_MARK = "PENSTOCK-ERROR "
_MESSAGE_CHARS_MAX = 1000
Where = Literal["config", "source", "sink"]
_EXIT: dict[Where, int] = {"config": EXIT_CONFIGURATION, "source": EXIT_SOURCE, "sink": EXIT_SINK}


class Fault(Exception):
    """Carries a `PenstockError` out of a Python worker. `begin_again`: a new run may help, though the error is terminal."""

    def __init__(self, error: PenstockError, where: Where, *, begin_again: bool = False) -> None:
        super().__init__(_MARK + to_text(error, where))
        self.error = error
        self.where = where
        self.begin_again = begin_again

    def __reduce__(self) -> tuple[Any, ...]:
        return Fault, (self.error, self.where)


def to_text(error: PenstockError, where: Where) -> str:
    """One line of JSON."""
    return json.dumps({**error.to_json(), "where": where})


def from_text(text: str) -> Fault:
    return _from_value(json.loads(text))


def find(text: str) -> Fault | None:
    """The marked error in an exception's text; None where it was no error of ours."""
    at = text.find(_MARK)
    while at >= 0:
        try:
            value, _ = json.JSONDecoder().raw_decode(text, at + len(_MARK))
            return _from_value(value)
        except (ValueError, KeyError, TypeError, StopIteration):
            at = text.find(_MARK, at + 1)
    return None


def unexpected(text: str) -> Terminal:
    """An error that is no error of ours, in one line: the last line of the Python traceback in it, or its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if _looks_like_exception(line)]
    return Terminal((python[-1:] or lines or ["Spark ended without a reason"])[0][:_MESSAGE_CHARS_MAX])


def exit_code(error: PenstockError, where: Where) -> int:
    return EXIT_TRY_AGAIN if error.transient else _EXIT[where]


def _looks_like_exception(line: str) -> bool:
    name, _, _ = line.partition(":")
    return name.rpartition(".")[2].endswith(("Error", "Exception")) and " " not in name and not name.startswith("org.")


def _from_value(value: dict[str, str]) -> Fault:
    where: Where = next(known for known in _EXIT if known == value["where"])
    return Fault(error_from_json(value), where)

"""Log lines as JSON on standard error, one object a line, in which a secret never appears.

Each process calls `configure` once; packages use Python's own `logging.getLogger(__name__)` and pass facts as
`extra={"changefeed": …}`. A secret given to `hide` is replaced in every string of every line, also in tracebacks and
nested values, and also in the forms that it takes in URLs and JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from typing import IO, Any
from urllib.parse import quote, quote_plus

from penstock.errors import PenstockError

REDACTED = "***"
LEVEL_VARIABLE = "PENSTOCK_LOG_LEVEL"  # debug, info, warning or error, for this process and its children
_OWN_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_lock = threading.Lock()
_hidden: tuple[str, ...] = ()


def hide(secret: str) -> None:
    """From now on, no log line of this process contains `secret`."""
    global _hidden
    if not secret:
        return
    forms = {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    forms.add(json.dumps(secret, ensure_ascii=False)[1:-1])
    with _lock:
        # Longest first: of a secret that contains another one, nothing may stay.
        _hidden = tuple(sorted({*_hidden, *forms}, key=lambda form: (-len(form), form)))


def redact(text: str) -> str:
    """`text` without any hidden value."""
    for form in _hidden:
        text = text.replace(form, REDACTED)
    return text


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: `time`, `level`, `process`, `logger`, `message`, then the facts in
    `extra`."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        milliseconds = int(record.created * 1000)
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{milliseconds % 1000:03d}Z",
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name, value in record.__dict__.items():
            if name not in _OWN_FIELDS:
                line[name] = _plain(value)
        if record.exc_info and (error := record.exc_info[1]) is not None:
            line["error"] = {"kind": type(error).__name__, "message": redact(str(error))}
            if isinstance(error, PenstockError):
                line["error"]["transient"] = error.transient
            line["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(line)  # in ASCII: a name never moves the cursor of who reads it, and any encoding has it


def _plain(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {redact(str(k)): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    return redact(str(value))


def configure(process: str, *, level: int | None = None, stream: IO[str] | None = None) -> None:
    """Sends every log line of this process to standard error as JSON. Calling it again replaces the earlier call.

    Without a `level` it is what the environment says (`LEVEL_VARIABLE`), or info.
    """
    if level is None:
        level = logging.getLevelNamesMapping().get(os.environ.get(LEVEL_VARIABLE, "").upper(), logging.INFO)
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("py4j", "numba"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))

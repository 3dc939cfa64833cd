"""Checks of what callers pass in, on their own thread: whatever is wrong raises `BadInput` and changes nothing.

Threads that serve everybody must never meet one caller's mistake. So each public call checks what it hands on; calls made
for each entry look at exact types alone.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import BadInput

_OR_NONE = "; None for no limit"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
NUMBER_MAX = (1 << 63) - 1  # what files, arrays and SQLite can hold


def check_count(name: str, value: object, *, least: int = 0, optional: bool = False) -> None:
    """Raises `BadInput` unless it is a whole number of 63 bits, at least `least`; or None, where it is `optional`."""
    if not (optional and value is None) and (type(value) is not int or not least <= value <= NUMBER_MAX):
        raise BadInput(
            f"{name} is {shown(value)}", hint=f"a whole number, at least {least}{_OR_NONE if optional else ''}"
        )


def check_amount(name: str, value: object, *, optional: bool = False, above: bool = False) -> None:
    """Raises `BadInput` unless it is a finite number, not below 0 (with `above`: above 0); or None, where it is
    `optional`."""
    if optional and value is None:
        return
    if type(value) not in (int, float) or not 0 <= value <= NUMBER_MAX or (above and value == 0):  # type: ignore[operator]
        least = "above 0" if above else "not below 0"
        raise BadInput(f"{name} is {shown(value)}", hint=f"a number, {least}{_OR_NONE if optional else ''}")


def check_timeout(value: object) -> None:
    """Raises `BadInput` unless it is a number of seconds or None. One below 0 is over already; infinity never is."""
    if value is not None and (type(value) not in (int, float) or math.isnan(value)):  # type: ignore[arg-type]
        raise BadInput(f"the timeout is {shown(value)}", hint="a number of seconds; None to wait for ever")


def check_name(what: str, value: object) -> None:
    """Raises `BadInput` unless it can be the name of a file and a key of the metadata store."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise BadInput(
            f"{shown(value)} cannot be the name of {what}",
            hint="1 to 200 letters, digits, dots, dashes and underscores",
        )


def check_text(what: str, value: object, *, empty: bool = True) -> None:
    """Raises `BadInput` unless it is text that has UTF-8."""
    if not isinstance(value, str) or not (value or empty):
        raise BadInput(f"{what} is {shown(value)}", hint="text" if empty else "text that is not empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{what} is {value!a}, which has no UTF-8") from error


def check_texts(what: str, values: Any, *, optional: bool = False) -> None:
    """Raises `BadInput` unless it is a mapping of text to text; values may be None where they are `optional`."""
    if not isinstance(values, Mapping):
        raise BadInput(f"{what} cannot be a {type(values).__name__}", hint="a mapping of text to text")
    for key, value in values.items():
        check_text(f"a name of {what}", key)
        if not (optional and value is None):
            check_text(f"{what} {key!r}", value)


def check_names(what: str, values: Any) -> None:
    """Raises `BadInput` unless it is a collection of text, and no text itself."""
    if not isinstance(values, Collection) or isinstance(values, str | bytes | bytearray | memoryview | Mapping):
        raise BadInput(f"{what} cannot be a {type(values).__name__}", hint="a collection of names")
    for value in values:
        check_text(what, value)


def check_callable(what: str, value: object, *, optional: bool = False) -> None:
    """Raises `BadInput` unless it can be called; or is None, where it is `optional`."""
    if not callable(value) and not (optional and value is None):
        raise BadInput(f"{what} is {shown(value)}", hint="a function")


def check_type(what: str, value: object, kind: type | tuple[type, ...], *, optional: bool = False) -> None:
    """Raises `BadInput` unless it is of the type; or None, where it is `optional`."""
    if not isinstance(value, kind) and not (optional and value is None):
        names = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise BadInput(f"{what} cannot be a {type(value).__name__}", hint=f"a {names}")


def check_component(what: str, value: object, method: str, *, optional: bool = False) -> None:
    """Raises `BadInput` unless it looks like the component: it has this method. Or is None, where it is `optional`."""
    if not (optional and value is None) and (isinstance(value, type) or not callable(getattr(value, method, None))):
        raise BadInput(f"{what} cannot be a {type(value).__name__}", hint=f"something with a method {method}")


def checked_path(what: str, value: object) -> Path:
    """The path. Raises `BadInput` unless it is one that names a file or directory and has UTF-8."""
    if not isinstance(value, str | os.PathLike):
        raise BadInput(f"{what} cannot be a {type(value).__name__}", hint="a path is needed")
    text = os.fspath(value)
    check_text(what, text)
    path = Path(text)
    if not path.name or path.name == ".." or "\0" in text:
        raise BadInput(f"{what} cannot be {text!r}", hint="a path is needed")
    return path


def shown(value: object) -> str:
    """The value for a message, on one line and not too long. Never fails."""
    try:
        text = ascii(value)
    except Exception:  # an object of the caller's whose own code fails
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."

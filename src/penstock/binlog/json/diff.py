"""Partial JSON updates: the differences that a server logs instead of a document (`binlog_row_value_options`).

A difference is an operation, a path, and for all but REMOVE a value in binary JSON. They are applied in order to the
document of the before image. Numbers keep the digits that they were printed with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from penstock.binlog.json.binary import jsonb_to_text

_REPLACE, _INSERT, _REMOVE = range(3)
_NAMES = {_REPLACE: "JSON_REPLACE", _INSERT: "JSON_INSERT", _REMOVE: "JSON_REMOVE"}
# A step of a path: a member by a plain or a quoted name, or an element by its number.
_STEP = re.compile(r'\s*(?:\.\s*(?:"((?:[^"\\]|\\.)*)"|([^\s."\[\]]+))|\[\s*(\d+)\s*\])')
_LENGTH_BYTES = {252: 2, 253: 3, 254: 8}


class _Number(str):
    """The digits of a number, so that none is lost."""


def apply_diffs(document: str, diffs: bytes) -> str:
    """The document after the differences, as the server prints it. Raises `ValueError` for what cannot be applied."""
    tree = _parsed(document)
    for operation, path, value in _read(diffs):
        tree = _applied(tree, operation, path, None if value is None else _parsed(value))
    return _printed(tree)


def describe_diffs(diffs: bytes) -> str:
    """For people: `JSON_REPLACE("$.a", 7), JSON_REMOVE("$.b")`. Raises `ValueError` for what are no differences."""
    parts = []
    for operation, path, value in _read(diffs):
        if operation not in _NAMES:
            raise ValueError(f"a partial JSON update by an unknown operation {operation}")
        arguments = [json.dumps(path, ensure_ascii=False), *([] if value is None else [value])]
        parts.append(f"{_NAMES[operation]}({', '.join(arguments)})")
    return ", ".join(parts)


def _read(diffs: bytes) -> Iterator[tuple[int, str, str | None]]:
    """(operation, path, text of the value or None for REMOVE) of each."""
    at = 0
    while at < len(diffs):
        operation = diffs[at]
        path, at = _bytes(diffs, at + 1)
        value = None
        if operation != _REMOVE:
            raw, at = _bytes(diffs, at)
            value = jsonb_to_text(raw)
        yield operation, path.decode("utf-8"), value


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number)


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes after their length-encoded length, and the offset after them."""
    if at >= len(data):
        raise ValueError("a partial JSON update that is cut")
    width = _LENGTH_BYTES.get(data[at], 0)
    length = int.from_bytes(data[at + 1 : at + 1 + width], "little") if width else data[at]
    at += 1 + width
    if length > len(data) - at:
        raise ValueError("a partial JSON update that is cut")
    return data[at : at + length], at + length


def _steps(path: str) -> list[str | int]:
    if not path.startswith("$"):
        raise ValueError(f"a partial JSON update of the path {path!r}")
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise ValueError(f"a partial JSON update of the path {path!r}")
        quoted, plain, number = found.groups()
        steps.append(int(number) if number is not None else plain if plain is not None else json.loads(f'"{quoted}"'))
        at = found.end()
    return steps


def _applied(tree: Any, operation: int, path: str, value: Any) -> Any:
    steps = _steps(path)
    if not steps:
        if operation != _REPLACE:
            raise ValueError("a partial JSON update that inserts or removes a whole document")
        return value
    inner = tree
    for step in steps[:-1]:
        inner = _inside(inner, step, path)
    last = steps[-1]
    if operation == _INSERT and isinstance(last, int) and isinstance(inner, list):
        inner.insert(last, value)
    elif operation == _INSERT and isinstance(last, str) and isinstance(inner, dict):
        inner[last] = value
    elif operation == _REPLACE:
        _inside(inner, last, path)
        inner[last] = value
    elif operation == _REMOVE:
        _inside(inner, last, path)
        del inner[last]
    else:
        raise ValueError(f"a partial JSON update that cannot be applied at {path!r}")
    return tree


def _inside(tree: Any, step: str | int, path: str) -> Any:
    if isinstance(step, int) and isinstance(tree, list) and step < len(tree):
        return tree[step]
    if isinstance(step, str) and isinstance(tree, dict) and step in tree:
        return tree[step]
    raise ValueError(f"a partial JSON update of {path!r}, which the document before it does not have")


def _printed(tree: Any) -> str:
    if isinstance(tree, dict):
        # The server keeps members by the length of their names, then by their bytes.
        members = sorted(((name.encode(), name) for name in tree), key=lambda member: (len(member[0]), member[0]))
        return "{" + ", ".join(f"{_printed(name)}: {_printed(tree[name])}" for _, name in members) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(_printed, tree)) + "]"
    return str(tree) if isinstance(tree, _Number) else json.dumps(tree, ensure_ascii=False)

"""The rules once more, row by row and in plain Python: what the vectorised ones are compared with.

A row image is a dict; a column that the image lacks is not in it. Only the parser is shared.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.rules.expressions.parser import parse
from penstock.rules.expressions.syntax import Binary, Call, InList, IsNull, Like, Literal, Name, Node, Unary
from penstock.rules.settings import Rule

Image = dict[str, Any]
INT_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Row:
    op: str  # I, U, D
    before: Image | None
    after: Image | None


class Untold(Exception):
    """A filter reads a column that the image lacks."""


def value_of(node: Node, row: Image) -> Any:
    """A value of an expression for one row; None is NULL."""
    match node:
        case Literal(_, value):
            return value
        case Name(_, name):
            return row[name.lower()]
        case Unary(_, "not", operand):
            inner = value_of(operand, row)
            return None if inner is None else not inner
        case Unary(_, _, operand):
            inner = value_of(operand, row)
            return None if inner is None else _fits(-inner)
        case Binary(_, "and", left, right):
            both = [value_of(left, row), value_of(right, row)]
            return False if False in both else None if None in both else True
        case Binary(_, "or", left, right):
            both = [value_of(left, row), value_of(right, row)]
            return True if True in both else None if None in both else False
        case Binary(_, "||", left, right):
            return _joined([value_of(left, row), value_of(right, row)])
        case Binary(_, ("+" | "-" | "*" | "/") as operator, left, right):
            return _computed(operator, value_of(left, row), value_of(right, row))
        case Binary(_, operator, left, right):
            return _compared(operator, value_of(left, row), value_of(right, row))
        case IsNull(_, operand):
            return value_of(operand, row) is None
        case InList(_, operand, items):
            found = [_compared("=", value_of(operand, row), item.value) for item in items]
            return True if True in found else None if None in found else False
        case Like(_, operand, pattern):
            text = value_of(operand, row)
            return None if text is None else _like(pattern).fullmatch(text) is not None
        case Call(_, name, arguments):
            return _called(name, arguments, row)
    raise AssertionError(node)


def _fits(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -INT_MAX - 1 <= value <= INT_MAX else None
    return value if not isinstance(value, float) or math.isfinite(value) else None


def _computed(operator: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if operator == "/" or isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if operator == "/" and right == 0:
            return None
    try:
        made = {
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
            "/": lambda: left / right,
        }
        return _fits(made[operator]())
    except OverflowError:
        return None


def _compared(operator: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    tests: dict[str, Callable[[], bool]] = {
        "=": lambda: left == right,
        "<>": lambda: left != right,
        "<": lambda: left < right,
        "<=": lambda: left <= right,
        ">": lambda: left > right,
        ">=": lambda: left >= right,
    }
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return tests[operator]()


def _like(pattern: str) -> re.Pattern[str]:
    made = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\" and at + 1 < len(pattern):
            at += 1
            made.append(re.escape(pattern[at]))
        else:
            made.append({"%": ".*", "_": "."}.get(letter, re.escape(letter)))
        at += 1
    return re.compile("".join(made), re.DOTALL)


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return re.sub(r"e([+-])0+", r"e\1", repr(value)).removesuffix(".0")
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _joined(values: list[Any]) -> str | None:
    return None if None in values else "".join(text_of(value) for value in values)


def _called(name: str, arguments: tuple[Node, ...], row: Image) -> Any:
    values = [value_of(argument, row) for argument in arguments]
    if name == "coalesce":
        return next((value for value in values if value is not None), None)
    if name == "if":
        return values[1] if values[0] else values[2]
    if name == "nullif":
        return None if _compared("=", *values) else values[0]
    if None in values:
        return None
    plain: dict[str, Callable[..., Any]] = {
        "lower": str.lower,
        "upper": str.upper,
        "trim": lambda text: text.strip(" "),
        "length": len,
        "abs": lambda number: _fits(abs(number)),
        "text": text_of,
        "concat": lambda *parts: _joined(list(parts)),
        "substr": lambda text, start, count=None: text[start - 1 : None if count is None else start - 1 + count],
    }
    return plain[name](*values)


def masked(kind: str, value: Any, key: bytes) -> Any:
    if value is None or kind == "null":
        return None
    if kind == "redact":
        return "***"
    data = value if isinstance(value, bytes) else text_of(value).encode()
    return hmac.new(key, data, "sha256").hexdigest() if kind == "hmac-sha256" else hashlib.sha256(data).hexdigest()


def applied(rules: list[Rule], table: str, row: Row, key: bytes) -> Row | None:
    """What a sink sees of a row; None if it sees nothing. Raises `Untold`."""
    before, after = row.before, row.after
    if before is not None and after is not None:  # what an update left out did not change
        after = {**{name: value for name, value in before.items() if name not in after}, **after}
    op = row.op
    for rule in rules:
        if not fnmatch.fnmatchcase(table, rule.table):
            continue
        if rule.filter is not None:
            was, now = _passes(rule.filter, before), _passes(rule.filter, after)
            if not was and not now:
                return None
            if op == "U" and was != now:
                op, before, after = ("I", None, after) if now else ("D", before, None)
        before, after = _shaped(rule, before, key), _shaped(rule, after, key)
    return Row(op, before, after)


def _passes(text: str, image: Image | None) -> bool:
    if image is None:
        return False
    expression = parse(text)
    if not expression.names() <= image.keys():
        raise Untold
    return value_of(expression.root, image) is True


def _shaped(rule: Rule, image: Image | None, key: bytes) -> Image | None:
    if image is None:
        return None
    made = {name: masked(rule.mask[name], value, key) if name in rule.mask else value for name, value in image.items()}
    added = {}
    for name, text in rule.compute.items():
        expression = parse(text)
        if expression.names() <= made.keys():
            value = value_of(expression.root, made)
            added[name] = int(value) if isinstance(value, bool) else value
    if rule.columns:
        made = {name: value for name, value in made.items() if name in rule.columns}
    return {**{name: value for name, value in made.items() if name not in rule.drop}, **added}

"""The functions of the language. Each checks its arguments once, and gives NULL where an argument is NULL, but for
`coalesce`, `if` and `nullif`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.rules.expressions.binding import Binder, Bound, Inputs, Value
from penstock.rules.expressions.syntax import Literal, Node
from penstock.rules.expressions.types import BOOL, INT, NULL, NUMBERS, TEXT, Array, Kind, ValueType

Function = Callable[[Binder, int, list[Node]], Bound]


def _counted(binder: Binder, at: int, name: str, given: list[Node], wanted: tuple[int, int | None]) -> None:
    least, most = wanted
    if len(given) < least or (most is not None and len(given) > most):
        number = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise binder.error(f"{name} takes {number} arguments, and {len(given)} are given", at)


def _of_text(name: str, kernel: Callable[[Array], Any]) -> Function:
    def bind(binder: Binder, at: int, given: list[Node]) -> Bound:
        _counted(binder, at, name, given, (1, 1))
        inner = binder.of_kind(binder.bind(given[0]), TEXT, f"{name} is for texts")
        return Bound(at, TEXT, lambda i: kernel(inner.array(i)))

    return bind


def _length(binder: Binder, at: int, given: list[Node]) -> Bound:
    """Characters of a text, bytes of bytes."""
    _counted(binder, at, "length", given, (1, 1))
    inner = binder.bind(given[0])
    count: Any = pc.binary_length if inner.type.kind is Kind.BYTES else pc.utf8_length
    if inner.type.kind is Kind.BYTES:
        return Bound(at, INT, lambda i: count(inner.array(i)).cast(pa.int64()))
    text = binder.of_kind(inner, TEXT, "length is for texts and bytes")
    return Bound(at, INT, lambda i: count(text.array(i)).cast(pa.int64()))


def _substr(binder: Binder, at: int, given: list[Node]) -> Bound:
    """The first character is 1. Where to begin and how many are literals."""
    _counted(binder, at, "substr", given, (2, 3))
    text = binder.of_kind(binder.bind(given[0]), TEXT, "substr is for texts")
    numbers = []
    for least, node in zip((1, 0), given[1:], strict=False):
        value = node.value if isinstance(node, Literal) else None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 31:
            raise binder.error(f"a whole number from {least} on is wanted here", node.at)
        numbers.append(value)
    start = numbers[0] - 1
    stop = start + numbers[1] if len(numbers) > 1 else None
    cut: Any = pc.utf8_slice_codeunits
    return Bound(at, TEXT, lambda i: cut(text.array(i), start, stop))


def _concat(binder: Binder, at: int, given: list[Node]) -> Bound:
    _counted(binder, at, "concat", given, (1, None))
    return binder.concatenated(at, [binder.bind(node) for node in given])


def _text(binder: Binder, at: int, given: list[Node]) -> Bound:
    _counted(binder, at, "text", given, (1, 1))
    return binder.as_text(binder.bind(given[0]))


def _alternatives(binder: Binder, at: int, nodes: list[Node]) -> tuple[list[Bound], ValueType]:
    """The values of all nodes in the one type in which they meet."""
    bound = [binder.bind(node) for node in nodes]
    kind = bound[0].type
    for one in bound[1:]:
        first = Bound(at, kind, bound[0].run, bound[0].constant, bound[0].text)
        kind = binder.meet(one.at, first, one)[2]
    if kind == NULL:
        kind = BOOL
    made = []
    for one in bound:
        if one.text is not None and kind.kind is not Kind.TEXT:
            one, _, _ = binder.meet(one.at, one, Bound(at, kind, one.run))  # noqa: PLW2901
        made.append(binder.converted(one, kind))
    return made, kind


def _coalesce(binder: Binder, at: int, given: list[Node]) -> Bound:
    _counted(binder, at, "coalesce", given, (1, None))
    parts, kind = _alternatives(binder, at, given)
    pick: Any = pc.coalesce
    return Bound(at, kind, lambda i: pick(*(part.array(i) for part in parts)))


def _if(binder: Binder, at: int, given: list[Node]) -> Bound:
    """The third argument where the condition is false or NULL."""
    _counted(binder, at, "if", given, (3, 3))
    condition = binder.condition(given[0])
    (yes, no), kind = _alternatives(binder, at, given[1:])

    def run(inputs: Inputs) -> Value:
        known: Any = condition.array(inputs).fill_null(False)
        return pc.if_else(known, yes.array(inputs), no.array(inputs))

    return Bound(at, kind, run)


def _nullif(binder: Binder, at: int, given: list[Node]) -> Bound:
    """The first argument; NULL where both are equal."""
    _counted(binder, at, "nullif", given, (2, 2))
    value = binder.bind(given[0])
    a, b, _ = binder.meet(at, value, binder.bind(given[1]))

    def run(inputs: Inputs) -> Value:
        same: Any = pc.equal(a.array(inputs), b.array(inputs)).fill_null(False)
        values = value.array(inputs)
        return pc.if_else(same, pa.scalar(None, values.type), values)

    return Bound(at, value.type, run)


def _abs(binder: Binder, at: int, given: list[Node]) -> Bound:
    _counted(binder, at, "abs", given, (1, 1))
    inner = binder.bind(given[0])
    if inner.type != NULL and inner.type.kind not in NUMBERS:
        raise binder.error(f"abs is for numbers, and this is {inner.type.kind.value}", inner.at)
    if inner.type.kind is not Kind.INT:
        return Bound(at, inner.type, lambda i: pc.abs(inner.array(i)) if inner.type != NULL else inner.array(i))

    def run(inputs: Inputs) -> Value:
        values = inner.array(inputs)
        least = pa.scalar(np.iinfo(np.int64).min, pa.int64())
        return pc.abs(pc.if_else(pc.equal(values, least), pa.scalar(None, pa.int64()), values))

    return Bound(at, INT, run)


def _date(binder: Binder, at: int, given: list[Node]) -> Bound:
    """The date of a datetime, or of a timestamp in UTC; NULL of the zero timestamp."""
    _counted(binder, at, "date", given, (1, 1))
    inner = binder.bind(given[0])
    made = ValueType(Kind.DATE)
    if inner.type.kind is Kind.DATETIME:
        return Bound(at, made, lambda i: _date_of_packed(inner.array(i)))
    if inner.type.kind is Kind.TIMESTAMP:
        return Bound(at, made, lambda i: _date_of_micros(inner.array(i)))
    return binder.of_kind(inner, made, "date is for datetimes and timestamps")


def _date_of_packed(values: Array) -> Array:
    packed = np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), np.int64) >> 24
    year, month = np.divmod(packed >> 22, 13)
    return pa.array(year << 9 | month << 5 | packed >> 17 & 31, pa.int64(), mask=_missing(values))


def _date_of_micros(values: Array) -> Array:
    zero = pc.equal(values, pa.scalar(0, pa.int64()))
    moments = pc.if_else(zero, pa.scalar(None, pa.int64()), values).cast(pa.timestamp("us"))
    year, month, day = (pc.fill_null(one(moments), 0) for one in (pc.year, pc.month, pc.day))
    numbers = [np.asarray(one.to_numpy(zero_copy_only=False), np.int64) for one in (year, month, day)]
    return pa.array(numbers[0] << 9 | numbers[1] << 5 | numbers[2], pa.int64(), mask=_missing(moments))


def _missing(values: Array) -> Any:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def _lower(values: Array) -> Any:
    return pc.utf8_lower(values)


def _upper(values: Array) -> Any:
    return pc.utf8_upper(values)


def _trim(values: Array) -> Any:
    cut: Any = pc.utf8_trim
    return cut(values, " ")


FUNCTIONS: dict[str, Function] = {
    "abs": _abs,
    "coalesce": _coalesce,
    "concat": _concat,
    "date": _date,
    "if": _if,
    "length": _length,
    "lower": _of_text("lower", _lower),
    "nullif": _nullif,
    "substr": _substr,
    "text": _text,
    "trim": _of_text("trim", _trim),
    "upper": _of_text("upper", _upper),
}

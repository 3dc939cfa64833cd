"""An expression and the columns of a table → a function of Arrow columns, by the three-valued logic of SQL.

Everything that can be wrong is found here, once for each version of a table; the function that is made cannot fail on any
row. Nothing in it runs per row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.rules.expressions import arithmetic, temporal
from penstock.rules.expressions.columns import as_text, type_of, value_of
from penstock.rules.expressions.syntax import (
    BadExpression,
    Binary,
    Call,
    Expression,
    InList,
    IsNull,
    Like,
    Literal,
    Name,
    Node,
    Unary,
)
from penstock.rules.expressions.types import (
    BOOL,
    BYTES,
    DIGITS_MAX,
    DOUBLE,
    INT,
    NULL,
    NUMBERS,
    TEMPORAL,
    TEXT,
    Array,
    Kind,
    ValueType,
    common,
)
from penstock.schema.model import Column

Value = Any  # an Arrow array, or a scalar that stands for all rows
_KERNELS: dict[str, Any] = {"=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}  # fmt: skip


class Inputs(NamedTuple):
    """One image of the rows: an array for each column, in physical form."""

    columns: Sequence[Array]
    rows: int


@dataclass(frozen=True, slots=True)
class Bound:
    """A part of an expression. `constant`: `run` gives a scalar. `text`: of a literal text."""

    at: int
    type: ValueType
    run: Callable[[Inputs], Value]
    constant: bool = False
    text: str | None = None

    def array(self, inputs: Inputs) -> Array:
        """The values of all rows."""
        made = self.run(inputs)
        if not self.constant:
            return made  # type: ignore[no-any-return]
        return pa.repeat(made, inputs.rows)


@dataclass(frozen=True, slots=True)
class BoundExpression:
    """An expression over the columns of a table. `columns`: the ordinals of those that it reads."""

    type: ValueType
    columns: tuple[int, ...]
    run: Callable[[Inputs], Array]


def bind(expression: Expression, columns: Sequence[Column]) -> BoundExpression:
    """Raises `BadExpression` where the expression does not fit the columns."""
    binder = Binder(expression.text, columns)
    bound = binder.bind(expression.root)
    return BoundExpression(bound.type, tuple(sorted(binder.used)), bound.array)


def bind_filter(expression: Expression, columns: Sequence[Column]) -> BoundExpression:
    """As `bind`, of a condition: its arrays are true, false or NULL."""
    binder = Binder(expression.text, columns)
    bound = binder.condition(expression.root)
    return BoundExpression(bound.type, tuple(sorted(binder.used)), bound.array)


class Binder:
    def __init__(self, text: str, columns: Sequence[Column]) -> None:
        self._text = text
        self._columns = columns
        self._ordinals = {column.name.lower(): at for at, column in enumerate(columns)}
        self.used: set[int] = set()

    def error(self, what: str, at: int) -> BadExpression:
        return BadExpression(what, self._text, at)

    def bind(self, node: Node) -> Bound:
        match node:
            case Literal():
                return self._literal(node)
            case Name():
                return self._column(node)
            case Unary(at, "not", operand):
                inner = self.condition(operand)
                return Bound(at, BOOL, lambda i: pc.invert(inner.run(i)), inner.constant)
            case Unary(at, _, operand):
                number = self.bind(operand)
                if number.type.kind in (Kind.DECIMAL, Kind.DOUBLE):
                    return Bound(at, number.type, lambda i: pc.negate(number.array(i)))
                return self._arithmetic(at, "-", self._literal(Literal(at, 0)), number)
            case Binary(at, ("and" | "or") as word, left, right):
                a, b = self.condition(left), self.condition(right)
                join: Any = pc.and_kleene if word == "and" else pc.or_kleene
                return self.joined(at, BOOL, join, a, b)
            case Binary(at, ("+" | "-" | "*" | "/") as operator, left, right):
                return self._arithmetic(at, operator, self.bind(left), self.bind(right))
            case Binary(at, "||", left, right):
                return self.concatenated(at, [self.bind(left), self.bind(right)])
            case Binary(at, operator, left, right):
                a, b, _ = self.meet(at, self.bind(left), self.bind(right))
                return self.joined(at, BOOL, _KERNELS[operator], a, b)
            case IsNull(at, operand):
                inner = self.bind(operand)
                return Bound(at, BOOL, lambda i: pc.is_null(inner.array(i)))
            case Like(at, operand, pattern):
                inner = self.of_kind(self.bind(operand), TEXT, "LIKE is for texts")
                regex = _regex(pattern)
                return Bound(at, BOOL, lambda i: pc.match_substring_regex(inner.array(i), regex))
            case InList():
                return self._in_list(node)
            case Call(at, name, arguments):
                from penstock.rules.expressions.functions import FUNCTIONS

                function = FUNCTIONS.get(name)
                if function is None:
                    raise self.error(f"there is no function {name!r}; there are {', '.join(sorted(FUNCTIONS))}", at)
                return function(self, at, list(arguments))
        raise AssertionError(node)

    def condition(self, node: Node) -> Bound:
        """A part that is true, false or NULL."""
        return self.of_kind(self.bind(node), BOOL, "a condition is wanted here, such as a comparison")

    def of_kind(self, bound: Bound, kind: ValueType, what: str) -> Bound:
        if bound.type == NULL:
            return self.converted(bound, kind)
        if bound.type.kind is not kind.kind:
            raise self.error(f"{what}, and this is {bound.type.kind.value}", bound.at)
        return bound

    def joined(self, at: int, kind: ValueType, kernel: Any, a: Bound, b: Bound) -> Bound:
        """A kernel of two values; a constant stays one only beside another."""
        return Bound(at, kind, lambda i: kernel(a.run(i), b.run(i)), a.constant and b.constant)

    def meet(self, at: int, left: Bound, right: Bound) -> tuple[Bound, Bound, ValueType]:
        """Both in the type in which they meet."""
        for one, other in ((left, right), (right, left)):
            if one.text is not None and other.type.kind in TEMPORAL:
                made = self._temporal(one, other.type)
                return (made, right, other.type) if one is left else (left, made, other.type)
        kind = common(left.type, right.type)
        if kind is None:
            raise self.error(f"{left.type.kind.value} and {right.type.kind.value} do not go together", at)
        if kind == NULL:
            kind = BOOL
        if kind.kind is Kind.DECIMAL:  # compared with all digits that both have
            wide = pa.decimal256(76, kind.scale)
            return self._cast(left, kind, wide), self._cast(right, kind, wide), kind
        return self.converted(left, kind), self.converted(right, kind), kind

    def converted(self, bound: Bound, kind: ValueType) -> Bound:
        """The value as another type that it meets."""
        if bound.type == kind:
            return bound
        if kind.kind is Kind.DECIMAL:
            wide = self._cast(bound, kind, pa.decimal256(76, kind.scale))
            return replace(wide, run=lambda i: arithmetic.fitted(wide.array(i), kind), constant=False)
        return self._cast(bound, kind, kind.arrow)

    def _cast(self, bound: Bound, kind: ValueType, arrow: pa.DataType) -> Bound:
        run = bound.run

        def cast(inputs: Inputs) -> Value:
            made = run(inputs)
            if pa.types.is_boolean(made.type) and not pa.types.is_boolean(arrow):
                made = made.cast(pa.int64())
            if pa.types.is_int64(made.type) and pa.types.is_decimal(arrow):
                made = made.cast(pa.decimal128(19, 0))
            # Not safe: an integer beyond 2**53 becomes the nearest floating-point number.
            return made.cast(arrow, safe=not pa.types.is_floating(arrow)) if made.type != arrow else made

        return Bound(bound.at, kind, cast, bound.constant, bound.text)

    def concatenated(self, at: int, parts: Sequence[Bound]) -> Bound:
        texts = [self.as_text(part) for part in parts]

        def run(inputs: Inputs) -> Value:
            join: Any = pc.binary_join_element_wise
            return join(*(text.array(inputs) for text in texts), "")

        return Bound(at, TEXT, run)

    def as_text(self, bound: Bound) -> Bound:
        """Any value that can be printed, as text."""
        if bound.type == NULL:
            return self.converted(bound, TEXT)
        if bound.type.kind in (Kind.BYTES, Kind.OTHER):
            raise self.error(f"{bound.type.kind.value} cannot be made a text", bound.at)
        return Bound(bound.at, TEXT, lambda i: as_text(bound.type, bound.array(i)), text=bound.text)

    # ---- inside

    def _literal(self, node: Literal) -> Bound:
        value, at = node.value, node.at
        scalar: Any
        if value is None:
            kind, scalar = NULL, pa.scalar(None, pa.null())
        elif isinstance(value, bool):
            kind, scalar = BOOL, pa.scalar(value)
        elif isinstance(value, int | Decimal):
            kind, scalar = self._number(value, at)
        elif isinstance(value, float):
            kind, scalar = DOUBLE, pa.scalar(value, pa.float64())
        elif isinstance(value, bytes):
            kind, scalar = BYTES, pa.scalar(value, pa.binary())
        else:
            kind, scalar = TEXT, pa.scalar(value, pa.string())
        return Bound(at, kind, lambda _: scalar, constant=True, text=value if isinstance(value, str) else None)

    def _number(self, value: int | Decimal, at: int) -> tuple[ValueType, Any]:
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return INT, pa.scalar(value, pa.int64())
        exact = Decimal(value)
        _, digits, exponent = exact.as_tuple()
        scale = max(0, -int(exponent))
        precision = max(len(digits), scale, 1)
        if precision > DIGITS_MAX:
            raise self.error(f"a number has at most {DIGITS_MAX} digits", at)
        kind = ValueType(Kind.DECIMAL, precision, scale)
        return kind, pa.scalar(exact, kind.arrow)

    def _column(self, node: Name) -> Bound:
        ordinal = self._ordinals.get(node.name.lower())
        if ordinal is None:
            raise self.error(f"there is no column {node.name!r}", node.at)
        self.used.add(ordinal)
        column = self._columns[ordinal]
        return Bound(node.at, type_of(column), lambda i: value_of(column, i.columns[ordinal]))

    def _arithmetic(self, at: int, operator: str, left: Bound, right: Bound) -> Bound:
        for one in (left, right):
            if one.type.kind not in NUMBERS and one.type != NULL:
                raise self.error(f"{operator} is for numbers, and this is {one.type.kind.value}", one.at)
        kind = arithmetic.result_type(operator, left.type, right.type)
        if kind is None:
            raise self.error("the result would have too many digits", at)
        if kind == NULL:
            return self._literal(Literal(at, None))
        return Bound(at, kind, lambda i: arithmetic.computed(operator, kind, left.array(i), right.array(i)))

    def _temporal(self, literal: Bound, kind: ValueType) -> Bound:
        assert literal.text is not None
        number = temporal.physical(literal.text, kind.kind)
        if number is None:
            raise self.error(f"{kind.kind.value} is wanted here, such as {temporal.SHAPES[kind.kind]}", literal.at)
        scalar = pa.scalar(number, pa.int64())
        return Bound(literal.at, kind, lambda _: scalar, constant=True)

    def _in_list(self, node: InList) -> Bound:
        """`a = x OR a = y …`; with a NULL in the list it is never false."""
        made: Bound | None = None
        for item in node.items:
            one = self.bind(Binary(node.at, "=", node.operand, item))
            made = one if made is None else self.joined(node.at, BOOL, pc.or_kleene, made, one)
        assert made is not None
        return made


def _regex(pattern: str) -> str:
    """A pattern of LIKE as a regular expression. Not Arrow's own LIKE, which reads a backslash before some letters alone."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    made = [wild.get(part) or re.escape(part[1:] if len(part) > 1 else part) for part in parts]
    return f"(?s)\\A{''.join(made)}\\z"

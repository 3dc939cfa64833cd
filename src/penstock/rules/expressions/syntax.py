"""What an expression is made of. Every node knows where it begins in the text, so that an error can name the place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from penstock.errors import BadInput

_SHOWN_CHARACTERS = 24


class BadExpression(BadInput):
    """An expression that cannot be read, or that does not fit the columns of its table."""

    def __init__(self, what: str, text: str, at: int) -> None:
        self.what = what
        self.at = at
        rest = text[at : at + _SHOWN_CHARACTERS]
        near = f"near {rest!r}" if rest else "at its end"
        super().__init__(
            f"{what} (character {at + 1} of {text!r}, {near})", hint="docs/rules.md has the language of expressions"
        )


@dataclass(frozen=True, slots=True)
class Node:
    at: int


@dataclass(frozen=True, slots=True)
class Literal(Node):
    value: bool | int | Decimal | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A column."""

    name: str


@dataclass(frozen=True, slots=True)
class Unary(Node):
    operator: str  # not, -
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary(Node):
    operator: str  # and, or, = <> < <= > >=, + - * /, ||
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    operand: Node


@dataclass(frozen=True, slots=True)
class InList(Node):
    operand: Node
    items: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like(Node):
    operand: Node
    pattern: str


@dataclass(frozen=True, slots=True)
class Call(Node):
    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression and the text that it was read from."""

    text: str
    root: Node

    def names(self) -> set[str]:
        """The columns in it, in lower case."""
        return {node.name.lower() for node in walk(self.root) if isinstance(node, Name)}


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    match node:
        case Unary(_, _, operand) | IsNull(_, operand) | Like(_, operand, _) | InList(_, operand, _):
            yield from walk(operand)
        case Binary(_, _, left, right):
            yield from walk(left)
            yield from walk(right)
        case Call(_, _, arguments):
            for argument in arguments:
                yield from walk(argument)

"""Text → expression.

    or         = and { OR and }
    and        = not { AND not }
    not        = NOT not | test
    test       = sum [ comparison sum | IS [NOT] NULL | [NOT] IN ( literal, … ) | [NOT] LIKE 'pattern'
                 | [NOT] BETWEEN sum AND sum ]
    sum        = product { ( + | - | || ) product }
    product    = signed { ( * | / ) signed }
    signed     = - signed | operand
    operand    = literal | name | name ( or, … ) | ( or )

Words are the same in upper and lower case. Texts stand in single quotes, one quote inside is doubled; names that are no
plain word stand in backticks; bytes are x'…' in hexadecimal.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

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

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<bytes>[xX]'[^']*')
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<symbol><=|>=|<>|!=|\|\||[=<>+\-*/(),])""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_RESERVED = frozenset({"and", "or", "not", "is", "in", "like", "between", "null", "true", "false"})
_DEPTH_MAX = 100  # of parentheses, NOT and -: far more than anybody writes
_CHARACTERS_MAX = 20_000


class _Token(NamedTuple):
    kind: str  # bytes, text, quoted, number, word, symbol, end
    text: str
    at: int


def parse(text: str) -> Expression:
    """Raises `BadExpression`."""
    if len(text) > _CHARACTERS_MAX:
        raise BadExpression(f"an expression has at most {_CHARACTERS_MAX:,} characters", text, 0)
    parser = _Parser(text)
    root = parser.either()
    parser.expect_end()
    return Expression(text, root)


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadExpression(_unreadable(text[at]), text, at)
        kind = str(match.lastgroup)
        if kind != "space":
            found.append(_Token(kind, match.group(), at))
        at = match.end()
    return [*found, _Token("end", "", len(text))]


def _unreadable(character: str) -> str:
    if character == '"':
        return "texts stand in single quotes, and names in backticks"
    if character in "'`":
        return "this quote has no end"
    return f"{character!r} means nothing here"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    # -- tokens

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _error(self, what: str, at: int | None = None) -> BadExpression:
        return BadExpression(what, self._text, self._now.at if at is None else at)

    def _next(self) -> _Token:
        token = self._now
        self._at += 1
        return token

    def _symbol(self, *symbols: str) -> _Token | None:
        return self._next() if self._now.kind == "symbol" and self._now.text in symbols else None

    def _word(self, *words: str) -> _Token | None:
        return self._next() if self._now.kind == "word" and self._now.text.lower() in words else None

    def _expect(self, symbol: str) -> None:
        if self._symbol(symbol) is None:
            raise self._error(f"{symbol!r} is wanted here")

    def expect_end(self) -> None:
        if self._now.kind != "end":
            raise self._error("the expression should end here")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._error("it is nested too deeply")

    # -- the grammar

    def either(self) -> Node:
        self._deeper()
        node = self._both()
        while token := self._word("or"):
            node = Binary(token.at, "or", node, self._both())
        self._depth -= 1
        return node

    def _both(self) -> Node:
        node = self._negated()
        while token := self._word("and"):
            node = Binary(token.at, "and", node, self._negated())
        return node

    def _negated(self) -> Node:
        token = self._word("not")
        if token is None:
            return self._test()
        self._deeper()
        node = Unary(token.at, "not", self._negated())
        self._depth -= 1
        return node

    def _test(self) -> Node:
        node = self._sum()
        if token := self._symbol(*_COMPARISONS):
            made = Binary(token.at, _COMPARISONS[token.text], node, self._sum())
            if self._now.text in _COMPARISONS:
                raise self._error("comparisons are joined by AND")
            return made
        if token := self._word("is"):
            negated = self._word("not") is not None
            if self._word("null") is None:
                raise self._error("NULL is wanted after IS")
            return _maybe_not(IsNull(token.at, node), negated)
        start = self._now
        negated = self._word("not") is not None
        if token := self._word("in"):
            return _maybe_not(InList(token.at, node, self._list()), negated)
        if token := self._word("like"):
            pattern = self._next()
            if pattern.kind != "text":
                raise self._error("LIKE needs a pattern in quotes", pattern.at)
            return _maybe_not(Like(token.at, node, _unquoted(pattern.text)), negated)
        if token := self._word("between"):
            low = self._sum()
            if self._word("and") is None:
                raise self._error("AND is wanted here: x BETWEEN a AND b")
            bounds = (Binary(token.at, ">=", node, low), Binary(token.at, "<=", node, self._sum()))
            return _maybe_not(Binary(token.at, "and", *bounds), negated)
        if negated:
            raise self._error("IN, LIKE or BETWEEN is wanted after NOT", start.at)
        return node

    def _list(self) -> tuple[Literal, ...]:
        self._expect("(")
        items: list[Literal] = []
        while True:
            item = self._signed()
            if not isinstance(item, Literal):
                raise self._error("a list has only literals: numbers, texts, NULL", item.at)
            items.append(item)
            if self._symbol(",") is None:
                break
        self._expect(")")
        return tuple(items)

    def _sum(self) -> Node:
        node = self._product()
        while token := self._symbol("+", "-", "||"):
            node = Binary(token.at, token.text, node, self._product())
        return node

    def _product(self) -> Node:
        node = self._signed()
        while token := self._symbol("*", "/"):
            node = Binary(token.at, token.text, node, self._signed())
        return node

    def _signed(self) -> Node:
        token = self._symbol("-")
        if token is None:
            return self._operand()
        self._deeper()
        inner = self._signed()
        self._depth -= 1
        if isinstance(inner, Literal) and isinstance(inner.value, int | float | Decimal):
            return Literal(token.at, -inner.value)
        return Unary(token.at, "-", inner)

    def _operand(self) -> Node:
        token = self._next()
        if token.kind == "number":
            return Literal(token.at, _number(token.text))
        if token.kind == "text":
            return Literal(token.at, _unquoted(token.text))
        if token.kind == "bytes":
            try:
                return Literal(token.at, bytes.fromhex(token.text[2:-1]))
            except ValueError:
                raise self._error("x'…' holds pairs of hexadecimal digits", token.at) from None
        if token.kind == "quoted":
            return Name(token.at, token.text[1:-1].replace("``", "`"))
        if token.kind == "symbol" and token.text == "(":
            node = self.either()
            self._expect(")")
            return node
        if token.kind == "word":
            return self._named(token)
        raise self._error("a value is wanted here" if token.kind != "end" else "a value is missing here", token.at)

    def _named(self, token: _Token) -> Node:
        word = token.text.lower()
        if word in ("true", "false", "null"):
            return Literal(token.at, {"true": True, "false": False}.get(word))
        if self._symbol("(") is not None:
            return Call(token.at, word, self._arguments())
        if word in _RESERVED:
            raise self._error("a value is wanted here", token.at)
        return Name(token.at, token.text)

    def _arguments(self) -> tuple[Node, ...]:
        if self._symbol(")") is not None:
            return ()
        found = [self.either()]
        while self._symbol(",") is not None:
            found.append(self.either())
        self._expect(")")
        return tuple(found)


def _maybe_not(node: Node, negated: bool) -> Node:
    return Unary(node.at, "not", node) if negated else node


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _number(text: str) -> int | Decimal | float:
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)

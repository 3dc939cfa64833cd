"""SQL text → tokens, enough to read DDL: words, quoted names, strings, numbers, symbols.

Comments are dropped, except executable ones (`/*!50100 … */`, `/*M!100100 … */`): their content is SQL. Their version
is not looked at, because a server logs an executable comment that it did not execute as a plain one. There is no
grammar here. Text that ends inside a quote or comment raises `Unreadable`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntFlag

from penstock.errors import NotSupported

WORD, NAME, STRING, NUMBER, SYMBOL, END = "word", "name", "string", "number", "symbol", "end"

_SPACE = re.compile(r"(?:[\s\x00]|--(?:[ \t\x01-\x1f][^\n]*|(?=\n|\Z))|#[^\n]*)+")
_WORD = re.compile(
    r"[A-Za-z_$@\u0080-\U0010ffff][0-9A-Za-z_$@\u0080-\U0010ffff]*|[0-9]+[A-Za-z_$\u0080-\U0010ffff][0-9A-Za-z_$\u0080-\U0010ffff]*"
)
_NAME_AFTER_POINT = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_$])")
_EXECUTABLE = re.compile(r"/\*(M?)!(\d{5,6})?")
_NOT_EXECUTED = re.compile(r"/\*M? \d{5,6}(?!\d)")  # the server put a blank for the exclamation mark
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


class Unreadable(NotSupported):
    """A statement that this parser does not understand; the message says where it gave up."""


class SqlMode(IntFlag):
    """The bits of `sql_mode` that change what a statement means; the same in MySQL and MariaDB."""

    REAL_AS_FLOAT = 1 << 0
    ANSI_QUOTES = 1 << 2
    ORACLE = 1 << 9  # MariaDB
    MAXDB = 1 << 12  # MariaDB, MySQL before 8
    NO_BACKSLASH_ESCAPES = 1 << 20


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is without quotes. `upper`: a word in upper case, else empty. `start`, `end`: offsets in the SQL."""

    kind: str
    text: str
    upper: str
    start: int
    end: int


def tokens_of(sql: str, sql_mode: int = 0, *, limit: int | None = None, mariadb: bool = True) -> list[Token]:
    """The tokens of a statement, `END` last; at most the first `limit` of them. To MySQL, `/*M!` is a comment."""
    found: list[Token] = []
    at = 0
    executable = 0
    while limit is None or len(found) < limit:
        space = _SPACE.match(sql, at)
        if space:
            at = space.end()
        if at >= len(sql):
            break
        char = sql[at]
        if char == "/" and sql.startswith("/*", at):
            opening = _EXECUTABLE.match(sql, at)
            if opening and (mariadb or not opening.group(1)):
                executable += 1
                at = opening.end()
                continue
            at = _end_of_comment(sql, at)
            continue
        if executable and sql.startswith("*/", at):
            executable -= 1
            at += 2
            continue
        after_point = (
            len(found) > 1
            and found[-1].text == "."
            and found[-1].end == at
            and found[-2].kind in (WORD, NAME)
            and found[-2].end == found[-1].start
        )
        token = _token(sql, at, sql_mode, after_point, found[-1] if found else None)
        found.append(token)
        at = token.end
    found.append(Token(END, "", "", at, at))
    return found


def _end_of_comment(sql: str, at: int) -> int:
    """The offset after the comment that begins at `at`. One that was executable and not executed may hold another."""
    end = sql.find("*/", at + 2)
    if end < 0:
        raise _unterminated(sql)
    if _NOT_EXECUTED.match(sql, at) and (inner := sql.find("/*", at + 2, end)) >= 0:
        outer = sql.find("*/", end + 2)
        if outer >= 0 and not 0 <= sql.find("/*", inner + 2, outer) < end:
            return outer + 2
    return end + 2


def _token(sql: str, at: int, sql_mode: int, after_point: bool, before: Token | None) -> Token:
    char = sql[at]
    if char in "`'\"":
        is_name = char == "`" or (char == '"' and bool(sql_mode & SqlMode.ANSI_QUOTES))
        text, end = _quoted(sql, at, char, escapes=not is_name and not sql_mode & SqlMode.NO_BACKSLASH_ESCAPES)
        return Token(NAME if is_name else STRING, text, "", at, end)
    if after_point:  # after `schema.` a name may begin with a digit, or with what looks like a number
        name = _NAME_AFTER_POINT.match(sql, at)
        if name:
            return Token(WORD, name.group(), name.group().upper(), at, name.end())
    if char == "." and before is not None and before.kind in (WORD, NAME) and before.end == at:
        return Token(SYMBOL, ".", "", at, at + 1)
    number = _NUMBER.match(sql, at)
    if number:
        return Token(NUMBER, number.group(), "", at, number.end())
    word = _WORD.match(sql, at)
    if word:
        text = word.group()
        return Token(WORD, text, text.upper(), at, word.end())
    return Token(SYMBOL, char, "", at, at + 1)


def _quoted(sql: str, at: int, quote: str, *, escapes: bool) -> tuple[str, int]:
    parts: list[str] = []
    stops = re.compile(rf"[{quote}\\]" if escapes else quote)
    i = at + 1
    while True:
        stop = stops.search(sql, i)
        if stop is None:
            raise _unterminated(sql)
        parts.append(sql[i : stop.start()])
        i = stop.end()
        if stop.group() == quote:
            if not sql.startswith(quote, i):
                return "".join(parts), i
            parts.append(quote)
            i += 1
        elif i < len(sql):
            escaped = sql[i]
            # \% and \_ keep their backslash: they mean something in patterns only
            parts.append("\\" + escaped if escaped in "%_" else _ESCAPES.get(escaped, escaped))
            i += 1


def _unterminated(sql: str) -> Unreadable:
    return Unreadable(f"a statement that ends inside a quote or comment: {sql[:80]!r}")


class TokenReader:
    """Takes the tokens of a statement one after the other."""

    def __init__(self, sql: str, tokens: list[Token]) -> None:
        self.sql = sql
        self.tokens = tokens if tokens and tokens[-1].kind == END else [*tokens, _end_of(sql, tokens)]
        self.at = 0

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    @property
    def done(self) -> bool:
        return self.now.kind == END

    def next(self) -> Token:
        token = self.now
        if token.kind != END:
            self.at += 1
        return token

    def word(self, *words: str) -> bool:
        """Takes these words if all of them come next."""
        for i, word in enumerate(words):
            if self.at + i >= len(self.tokens) or self.tokens[self.at + i].upper != word:
                return False
        self.at += len(words)
        return True

    def any_word(self, *words: str) -> str:
        """Takes one of these words and says which; empty where none comes next."""
        upper = self.now.upper
        if upper and upper in words:
            self.at += 1
            return upper
        return ""

    def ahead(self, n: int = 1) -> Token:
        """The token `n` after the next one."""
        return self.tokens[min(self.at + n, len(self.tokens) - 1)]

    def sees(self, symbol: str) -> bool:
        return self.now.kind == SYMBOL and self.now.text == symbol

    def symbol(self, text: str) -> bool:
        """Takes this symbol if it comes next."""
        if self.sees(text):
            self.at += 1
            return True
        return False

    def name(self) -> str:
        """Takes an identifier, quoted or not."""
        if self.now.kind not in (WORD, NAME):
            raise self.unreadable()
        return self.next().text

    def qualified(self) -> tuple[str | None, str]:
        """Takes `table`, `.table` or `schema.table`."""
        if self.symbol("."):
            return None, self.name()
        first = self.name()
        if self.symbol("."):
            return first, self.name()
        return None, first

    def inside(self) -> list[Token]:
        """Takes a parenthesised group and gives the tokens between the parentheses."""
        if not self.symbol("("):
            raise self.unreadable()
        start = self.at
        depth = 1
        while depth:
            token = self.next()
            if token.kind == END:
                raise self.unreadable()
            if token.kind == SYMBOL and token.text in "()":
                depth += 1 if token.text == "(" else -1
        return self.tokens[start : self.at - 1]

    def rest(self) -> list[Token]:
        """Takes everything that is left."""
        found = self.tokens[self.at : -1]
        self.at = len(self.tokens) - 1
        return found

    def unreadable(self) -> Unreadable:
        near = f"near {self.now.text!r}" if not self.done else "at its end"
        return Unreadable(f"a statement that Penstock does not understand {near}")


def _end_of(sql: str, tokens: list[Token]) -> Token:
    at = tokens[-1].end if tokens else len(sql)
    return Token(END, "", "", at, at)


def split_commas(tokens: list[Token]) -> list[list[Token]]:
    """The parts between commas that are not inside parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.kind == SYMBOL:
            if token.text == "(":
                depth += 1
            elif token.text == ")":
                depth -= 1
            elif token.text == "," and depth == 0:
                parts.append([])
                continue
        parts[-1].append(token)
    return parts

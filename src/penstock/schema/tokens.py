"""SQL text → tokens, enough to read DDL: words, quoted names, strings, numbers, symbols; and names and strings back to
SQL, quoted so that nothing inside can end the quote early.

Comments are dropped, except executable ones (`/*!50100 … */`, `/*M! … */`): their content is SQL. There is no grammar
here. Text that ends inside a quote or comment raises `NotSupported`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import NotSupported

WORD, NAME, STRING, NUMBER, SYMBOL, END = "word", "name", "string", "number", "symbol", "end"

_SPACE = re.compile(r"(?:\s|--(?:[ \t][^\n]*|(?=\n|\Z))|#[^\n]*)+")
_WORD = re.compile(
    r"[A-Za-z_$@\u0080-\U0010ffff][0-9A-Za-z_$@\u0080-\U0010ffff]*|[0-9]+[A-Za-z_$\u0080-\U0010ffff][0-9A-Za-z_$\u0080-\U0010ffff]*"
)
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_$])")
_EXECUTABLE = re.compile(r"/\*M?!(\d{5,6})?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is without quotes. `upper`: a word in upper case, else empty. `start`, `end`: offsets in the SQL."""

    kind: str
    text: str
    upper: str
    start: int
    end: int


def tokens_of(sql: str, *, limit: int | None = None) -> list[Token]:
    """The tokens of a statement, `END` last; at most the first `limit` of them."""
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
            if opening:
                executable += 1
                at = opening.end()
                continue
            end = sql.find("*/", at + 2)
            if end < 0:
                raise _unterminated(sql)
            at = end + 2
            continue
        if executable and sql.startswith("*/", at):
            executable -= 1
            at += 2
            continue
        token = _token(sql, at, char)
        found.append(token)
        at = token.end
    found.append(Token(END, "", "", at, at))
    return found


def _token(sql: str, at: int, char: str) -> Token:
    if char in "`'\"":
        text, end = _quoted(sql, at, char)
        return Token(NAME if char == "`" else STRING, text, "", at, end)
    number = _NUMBER.match(sql, at)
    if number:
        return Token(NUMBER, number.group(), "", at, number.end())
    word = _WORD.match(sql, at)
    if word:
        text = word.group()
        return Token(WORD, text, text.upper(), at, word.end())
    return Token(SYMBOL, char, "", at, at + 1)


def _quoted(sql: str, at: int, quote: str) -> tuple[str, int]:
    parts: list[str] = []
    i = at + 1
    while i < len(sql):
        char = sql[i]
        if char == quote:
            if sql.startswith(quote, i + 1):
                parts.append(quote)
                i += 2
                continue
            return "".join(parts), i + 1
        if char == "\\" and quote != "`" and i + 1 < len(sql):
            parts.append(_ESCAPES.get(sql[i + 1], sql[i + 1]))
            i += 2
            continue
        parts.append(char)
        i += 1
    raise _unterminated(sql)


def _unterminated(sql: str) -> NotSupported:
    return NotSupported(f"a statement that ends inside a quote or comment: {sql[:80]!r}")


class TokenReader:
    """Takes the tokens of a statement one after the other."""

    def __init__(self, sql: str, tokens: list[Token] | None = None) -> None:
        self.sql = sql
        self.tokens = tokens_of(sql) if tokens is None else [*tokens, Token(END, "", "", len(sql), len(sql))]
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

    def symbol(self, text: str) -> bool:
        if self.now.kind == SYMBOL and self.now.text == text:
            self.at += 1
            return True
        return False

    def name(self) -> str:
        """Takes an identifier, quoted or not."""
        token = self.next()
        if token.kind not in (WORD, NAME, STRING):
            raise self.unreadable()
        return token.text

    def qualified(self) -> tuple[str | None, str]:
        """Takes `table` or `schema.table`."""
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

    def skip_group(self) -> None:
        if self.now.kind == SYMBOL and self.now.text == "(":
            self.inside()

    def unreadable(self) -> NotSupported:
        return NotSupported(
            f"a DDL that Penstock cannot read near {self.now.text!r}: {self.sql[:120]!r}",
            hint="report the statement; to go on, start after it with a new state_dir",
        )


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


def quoted_name(*parts: str) -> str:
    """An identifier, or a qualified one from its parts: `` `shop`.`orders` ``."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def quoted_string(text: str) -> str:
    """A string as SHOW CREATE TABLE prints it; a backslash stays as it is."""
    return "'" + text.replace("'", "''") + "'"

"""Which columns of a table keep the values that its changes brought, when a statement alters it.

The server fills in defaults, computes expressions, converts and cuts values, and none of it is a row event: what changes
brought of such a column is not what the table holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.schema.ddl.tokens import NAME, STRING, SYMBOL, WORD, Token
from penstock.schema.model import CHARACTER_TYPES, INTEGER_TYPES, Column

TEXT_BYTES = {"tinytext": (1 << 8) - 1, "text": (1 << 16) - 1, "mediumtext": (1 << 24) - 1, "longtext": (1 << 32) - 1}
WHOLE_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_CHARACTER_BYTES_MAX = 4
_BEFORE_A_NAME = ("COLUMN", "IF", "EXISTS")


def keeps_values(old: Column, new: Column) -> bool:
    """Whether each value that `old` can have is the same, and written alike, in `new`."""
    if old.nullable and not new.nullable:  # without strict mode a null becomes a zero or an empty text
        return False
    if old.base_type in INTEGER_TYPES and new.base_type in INTEGER_TYPES:
        (low, high), (lowest, highest) = integer_range(old), integer_range(new)
        return lowest <= low and high <= highest
    if old.base_type in CHARACTER_TYPES and new.base_type in CHARACTER_TYPES:
        same_charset = old.charset == new.charset or new.charset in WHOLE_UNICODE
        trims = new.base_type == "char" and old.base_type != "char"  # spaces at the end
        return same_charset and not trims and _fits(old, new)
    if old.base_type == new.base_type in ("enum", "set"):
        return new.elements[: len(old.elements)] == old.elements
    return old.plain_type == new.plain_type


def integer_range(column: Column) -> tuple[int, int]:
    """The smallest and the largest number that an integer column holds."""
    bits = _INTEGER_BITS[column.base_type]
    return (0, (1 << bits) - 1) if column.unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _fits(old: Column, new: Column) -> bool:
    """Whether the longest text of the one has room in the other. A CHAR or VARCHAR counts characters, a TEXT bytes."""
    if old.base_type in TEXT_BYTES:
        room = TEXT_BYTES.get(new.base_type) or (*new.arguments, 1)[0]
        return room >= TEXT_BYTES[old.base_type] and (new.base_type not in TEXT_BYTES or old.charset == new.charset)
    longest = (*old.arguments, 1)[0]
    if new.base_type in TEXT_BYTES:
        return TEXT_BYTES[new.base_type] >= longest * _CHARACTER_BYTES_MAX
    return (*new.arguments, 1)[0] >= longest


def made_anew(tokens: Sequence[Token]) -> set[str]:
    """Columns, in lower case, that an ALTER TABLE drops (perhaps to add them again), or to which it gives the name that
    another one had; and, where it has an expression of a computed column, all names in it."""
    words = [token for token in tokens if token.kind in (WORD, NAME, STRING, SYMBOL)]  # ANSI_QUOTES: a name in quotes
    found: set[str] = set()
    for place, token in enumerate(words):
        if token.kind != WORD:
            continue
        first = _after(words, place)
        if token.upper == "DROP":
            found.update(one.text.lower() for one in words[first : first + 1])
        elif token.upper == "AS" and [one.text for one in words[place + 1 : place + 2]] == ["("]:
            found.update(one.text.lower() for one in words)
        elif token.upper == "CHANGE":
            found |= _renamed(words[first : first + 2])
        elif token.upper == "RENAME" and first > place + 1 and words[first + 1 : first + 2] != []:
            found |= _renamed([words[first], *words[first + 2 : first + 3]])  # RENAME COLUMN a TO b
    return found


def _after(words: Sequence[Token], place: int) -> int:
    """The place of the name after a verb."""
    place += 1
    while place < len(words) and words[place].upper in _BEFORE_A_NAME:
        place += 1
    return place


def _renamed(names: Sequence[Token]) -> set[str]:
    """The new one of an old and a new name, if they are two."""
    old, new = (one.text.lower() for one in names) if len(names) == 2 else ("", "")
    return {new} if old != new else set()


def charsets_in(tokens: Sequence[Token]) -> set[str]:
    """The character sets that a statement names, in lower case; of a collation, its own."""
    found: set[str] = set()
    for place, token in enumerate(tokens):
        after = [one for one in tokens[place + 1 : place + 4] if one.text != "="]
        if token.upper == "CHARACTER" and after and after[0].upper == "SET":
            found.update(one.text.lower() for one in after[1:2])
        elif token.upper == "CHARSET":
            found.update(one.text.lower() for one in after[:1])
        elif token.upper == "COLLATE":
            found.update(one.text.lower().partition("_")[0] for one in after[:1])
    return found

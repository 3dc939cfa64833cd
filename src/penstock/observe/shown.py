"""Text that others wrote, as a terminal may be given it.

Names of tables, values of rows, messages of servers and paths are written by others, and a terminal obeys control
characters: it moves its cursor, turns the order of the letters round, hides what follows. Each character that it would not
draw as itself is written as an escape. The one place for it: the screen, `--json` and the log files of processes use it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

# Controls, format characters (among them every mark of direction), surrogates, private and unassigned characters, line
# and paragraph separators: what has no shape of its own, or changes that of others.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(value: object) -> str:
    """The value as text on one line, with escapes: `\\n`, `\\x1b`, `\\u202e`."""
    return _replaced(str(value), _escape)


def shown_lines(text: str) -> str:
    """The same for a text of several lines, which may be indented by tabs."""
    return _replaced(text, lambda character: character if character in "\n\t" else _escape(character))


def shown_json(document: str) -> str:
    """A document in JSON with the escapes of JSON: it says the same."""
    return _replaced(document, _json_escape)


def _replaced(text: str, escape: Callable[[str], str]) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(escape(c) if unicodedata.category(c) in _INVISIBLE else c for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

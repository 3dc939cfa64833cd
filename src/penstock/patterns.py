"""Patterns for names of tables, as people write them in the configuration: `shop.*`, `billing.invoice_?`."""

from __future__ import annotations

import fnmatch


def matches(name: str, pattern: str) -> bool:
    """Whether the pattern takes the name: `*` stands for any characters, `?` for one, and every other character for itself. A
    table may be called `orders[2024]`; to a shell that would be a choice of characters, and a rule that masks the table
    would pass it over."""
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))

"""Names and strings → SQL, quoted so that nothing inside can end the quote early; and names → words of a shell."""

from __future__ import annotations

import shlex


def quoted_name(*parts: str) -> str:
    """An identifier, or a qualified one from its parts: `` `shop`.`orders` ``."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def quoted_string(text: str) -> str:
    """A string as SHOW CREATE TABLE prints it; a backslash stays as it is."""
    return "'" + text.replace("'", "''") + "'"


def shell_word(name: str) -> str:
    """A name as part of a command that people copy: `$` is in many names, and a shell would replace what follows it."""
    return shlex.quote(name)

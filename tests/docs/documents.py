"""The project's documents as tests see them: files, code blocks, and the names of code that they mention."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "penstock"


def documents() -> list[Path]:
    """Every page that a reader may open first or be sent to."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def code_blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)


def prose(document: Path) -> Iterator[tuple[int, str]]:
    """(line number, line) of what wraps: neither code, nor a table, nor a line that is one link or picture."""
    code = False
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not (code or line.startswith(("|", "    ", "!["))):
            yield number, line

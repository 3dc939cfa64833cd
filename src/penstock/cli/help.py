"""The texts of `--help`: docstrings, whose lines end where an editor's did, flow to the width of the terminal."""

from __future__ import annotations

import inspect
from typing import Any

import typer


def flowing(text: str) -> str:
    """The text with one line for each paragraph. Lines that are indented, such as examples, stay as they are."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(one if one.startswith(" ") else " ".join(one.split()) for one in paragraphs)


def let_help_flow(app: typer.Typer) -> None:
    """Of all commands of the app. Typer leaves the line breaks of a docstring where they are, in narrow terminals too."""
    for command in app.registered_commands:
        text: Any = command.help or (command.callback and command.callback.__doc__)
        if text:
            command.help = flowing(text)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            let_help_flow(group.typer_instance)

"""Loads penstock.yaml: environment variables are filled in, and problems are reported with their lines.

`load` returns a typed `Config` or raises `BadConfig` with *every* problem found, each with its line and key, so that a
user corrects the file once. Nothing is started and nothing is written here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from penstock.delivery.settings import is_local, local_directory
from penstock.errors import BadInput
from penstock.files.private import check_not_planted
from penstock.operations.config.anchoring import anchored
from penstock.operations.config.known_keys import nearest_key
from penstock.operations.config.model import Config, Places
from penstock.quantities import is_size, shown_size

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NO_GROUP = ("model_type", "model_attributes_type", "dict_type")
_DEPTH_MAX, _NODES_MAX = 32, 100_000  # of a document: far more than anybody writes
# What YAML quotes of the file, which may be half of a password: `*abc` and `!abc` mean something else to it. What it expected
# instead (`'<block end>'`) stays.
_QUOTED = re.compile(r"""(['"])(?!<).{2,}\1""")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in the file."""

    key: str
    line: int
    message: str


class BadConfig(BadInput):
    """The configuration is refused; nothing was started."""

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        self.path = path
        self.problems = tuple(problems)
        lines = "; ".join(
            f"{path}:{p.line}: {p.key}: {p.message}" if p.key else f"{path}: {p.message}" for p in problems
        )
        super().__init__(lines, hint="penstock check shows every setting; penstock init writes a new file")


def load(path: Path, environment: Mapping[str, str] = os.environ, *, asks_source: bool = True) -> Config:
    """The configuration in the file. Relative paths are taken from the file's own directory, wherever they stand. Who does not
    ask the source need not know its secrets: without `asks_source` they are left out, and so are their variables."""
    return parse(_text_of(path), path, environment, asks_source=asks_source)


def parse(text: str, path: Path, environment: Mapping[str, str] = os.environ, *, asks_source: bool = True) -> Config:
    """`load` for a file that may not be there yet."""
    value, lines = _read(text, path)
    if not asks_source:
        value = _without_secrets_of_source(value)
    problems: list[Problem] = []
    value = _substitute(value, environment, (), lines, problems)
    try:
        config = TypeAdapter(Config).validate_python(value)
    except ValidationError as error:
        found = _of_chosen_kinds(error.errors(include_input=False, include_url=False), value, lines)
        problems += [_problem(e, _message(e, value), lines) for e in found]
        raise BadConfig(path, sorted(problems, key=lambda p: p.line)) from None
    if problems:
        raise BadConfig(path, problems)
    config = anchored(config, path.parent.resolve())
    if nested := _nested(config, lines):
        raise BadConfig(path, nested)
    return config


def _without_secrets_of_source(value: dict[str, Any]) -> dict[str, Any]:
    source = value.get("source")
    if not isinstance(source, dict):
        return value
    source = {key: one for key, one in source.items() if key != "password"}
    if isinstance(source.get("tls"), dict):
        source["tls"] = {key: one for key, one in source["tls"].items() if key != "key_password"}
    return {**value, "source": source}


def _nested(config: Config, lines: dict[tuple[int | str, ...], int]) -> list[Problem]:
    """Sinks that lie in each other, in the state directory, or it in them: what cleans or reads one of them meets the other."""
    state, found = config.state_dir.resolve(), []
    places: dict[str, str] = {}
    for name, sink in config.sinks.items():
        url = str(local_directory(sink.url).resolve()) if is_local(sink.url) else sink.url.rstrip("/")
        for other, there in places.items():
            if f"{url}/".startswith(f"{there}/") or f"{there}/".startswith(f"{url}/"):
                message = (
                    f"{url} and {there} of the sink {other} are one place, or lie in each other; give each sink its own"
                )
                found.append(Problem(f"sinks.{name}.url", lines.get(("sinks", name, "url"), 0), message))
        places[name] = url
        if not is_local(sink.url):
            continue
        place = local_directory(sink.url).resolve()
        if place == state or place in state.parents or state in place.parents:
            key = ("sinks", name, "url")
            message = f"{place} and state_dir, {state}, lie in each other; give each a directory of its own"
            found.append(Problem(".".join(key), lines.get(key, 0), message))
    return found


def load_places(path: Path, environment: Mapping[str, str] = os.environ) -> Places:
    """What a look at the flow from outside needs, and nothing else: it works without the variables of its secrets."""
    value, lines = _read(_text_of(path), path)
    problems: list[Problem] = []
    known: dict[str, Any] = {key: value[key] for key in ("state_dir", "sinks") if key in value}
    if isinstance(known.get("sinks"), dict):
        known["sinks"] = list(known["sinks"])
    source = value.get("source")
    if isinstance(source, dict) and "tables" in source:
        known["tables"] = source["tables"]
    known = _substitute(known, environment, (), lines, problems)
    try:
        places = TypeAdapter(Places).validate_python(known)
    except ValidationError as error:
        problems += [_problem(e, e["msg"], lines) for e in error.errors(include_input=False, include_url=False)]
    if problems:
        raise BadConfig(path, problems)
    return places.model_copy(update={"state_dir": path.parent.resolve() / places.state_dir})


def _text_of(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadConfig(path, [Problem("", 0, "there is no such file")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(path, [Problem("", 0, f"cannot be read: {error}")]) from error
    check_not_planted(path)
    return text


def _read(text: str, path: Path) -> tuple[dict[str, Any], dict[tuple[int | str, ...], int]]:
    """The mapping that the text is, and the line of each of its keys."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if not is_bounded(node):
            raise BadConfig(path, [Problem("yaml", 0, "it is nested too deeply, or an alias (*name) contains itself")])
        if twice := list(_twice(node)):
            raise BadConfig(path, twice)
        value = yaml.safe_load(text)
    except RecursionError:
        raise BadConfig(path, [Problem("yaml", 0, "it is nested too deeply")]) from None
    except ValueError:  # of Python's, for what only looks like a date or a number: 2026-13-45, 0x_
        message = "it looks like a date or a number and is none; put a text in quotes"
        raise BadConfig(path, [Problem("yaml", _line_of_misread(node), message)]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)
        what = _QUOTED.sub("'…' (a text that begins with a special character needs quotes)", str(what))
        raise BadConfig(path, [Problem("yaml", mark.line + 1 if mark else 0, what)]) from None
    if not isinstance(value, dict):
        raise BadConfig(path, [Problem("", 1, "the file must hold a mapping that starts with version: 1")])
    return value, _lines(node)


def is_bounded(node: yaml.Node | None) -> bool:
    """Whether the document is small once its aliases are written out. (An alias may contain itself.)"""
    count, todo = 0, [(node, 0)]
    while todo:
        one, depth = todo.pop()
        count += 1
        if depth > _DEPTH_MAX or count > _NODES_MAX:
            return False
        if isinstance(one, yaml.MappingNode):
            todo += [(child, depth + 1) for pair in one.value for child in pair]
        elif isinstance(one, yaml.SequenceNode):
            todo += [(child, depth + 1) for child in one.value]
    return True


def _twice(node: yaml.Node | None, prefix: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Keys that stand twice in one group: YAML's reader takes the last of them, and says nothing."""
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _twice(child, (*prefix, str(index)))
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, child in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                yield Problem(
                    ".".join((*prefix, name)), line, f"it stands here twice; the first is in line {lines[name]}"
                )
            lines.setdefault(name, line)
            yield from _twice(child, (*prefix, name))


def _line_of_misread(node: yaml.Node | None) -> int:
    """The line of the first value of which YAML's reader can make nothing; 0 where there is none."""
    reader, todo = yaml.SafeLoader(""), [node]
    while todo:
        one = todo.pop()
        if isinstance(one, yaml.ScalarNode):
            try:
                reader.construct_object(one)
            except ValueError:
                return one.start_mark.line + 1
        elif isinstance(one, yaml.CollectionNode):
            pairs = isinstance(one, yaml.MappingNode)
            todo += reversed([child for pair in one.value for child in pair] if pairs else one.value)
    return 0


def _message(error: Any, value: Any) -> str:
    """What Pydantic says, in the words of the file: a limit of a size with its unit, a group of settings by that name."""
    message, context = str(error["msg"]), error.get("ctx") or {}
    if error["type"] in _NO_GROUP:
        return "a group of settings is wanted here, such as `{name: value}`"
    if error["type"] == "union_tag_invalid":
        return f"{context['discriminator']} is {context['tag']!r}; it must be one of {context['expected_tags']}"
    if error["type"] == "union_tag_not_found":
        return f"{context['discriminator']} is missing, which says what kind it is"
    for part in error["loc"]:
        value = value.get(part) if isinstance(value, dict) else None
    limit = next(iter(context.values()), None)
    if is_size(value) and isinstance(limit, int):
        return message.replace(str(limit), shown_size(limit))
    return message


def _problem(error: Any, message: str, lines: dict[tuple[int | str, ...], int]) -> Problem:
    known = _in_file(error["loc"], lines, missing=error["type"] == "missing")
    line = next((lines[known[:n]] for n in range(len(known), 0, -1) if known[:n] in lines), 0)
    message = message.removeprefix("Value error, ")
    if message == "Extra inputs are not permitted":
        nearest = nearest_key(Config, known)
        message = f"unknown key; did you mean {nearest}?" if nearest else "unknown key"
    return Problem(".".join(str(part) for part in known), line, message[:1].lower() + message[1:])


def _of_chosen_kinds(errors: Sequence[Any], value: Any, lines: dict[tuple[int | str, ...], int]) -> list[Any]:
    """Where a value may be a word or a group of settings, Pydantic says what is wrong with it as either: only what it was
    meant as counts."""
    keys = [_in_file(error["loc"], lines) for error in errors]

    def counts(error: Any, key: tuple[int | str, ...]) -> bool:
        written = value
        for part in key:
            written = written.get(part) if isinstance(written, dict) else written[int(part)]
        others = sum(other[: len(key)] == key for other in keys) > 1
        return not others or error["type"] not in (("literal_error",) if isinstance(written, dict) else _NO_GROUP)

    return [error for error, key in zip(errors, keys, strict=True) if counts(error, key)]


def _in_file(
    location: tuple[int | str, ...], lines: dict[tuple[int | str, ...], int], *, missing: bool = False
) -> tuple[int | str, ...]:
    """The key that the location means. Pydantic puts the names of its own into it, of the kinds among which it chose, at any
    place: the file has no such keys, so they are left out. With `missing`, the last one is a key that is not there."""
    known: tuple[int | str, ...] = ()
    for at, part in enumerate(location):
        if (*known, part) in lines or (missing and at == len(location) - 1):
            known = (*known, part)
    return known


def _lines(node: yaml.Node | None, prefix: tuple[int | str, ...] = ()) -> dict[tuple[int | str, ...], int]:
    """The line of each key of the document."""
    found: dict[tuple[int | str, ...], int] = {}
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            path = (*prefix, key.value)
            found[path] = key.start_mark.line + 1
            found |= _lines(child, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            found[(*prefix, index)] = child.start_mark.line + 1
            found |= _lines(child, (*prefix, index))
    return found


def _substitute(
    value: Any,
    environment: Mapping[str, str],
    path: tuple[int | str, ...],
    lines: dict[tuple[int | str, ...], int],
    problems: list[Problem],
) -> Any:
    """Replaces `${NAME}` in every string. A variable that is not set is a problem: it must not become an empty
    password."""
    if isinstance(value, dict):
        return {k: _substitute(v, environment, (*path, k), lines, problems) for k, v in value.items()}
    if isinstance(value, list):
        return [_substitute(v, environment, (*path, i), lines, problems) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value
    if "\0" in value:  # the end of a text to the operating system: it would mean another file
        problems.append(Problem(".".join(map(str, path)), lines.get(path, 0), "a zero byte cannot be in a text"))
        return value.replace("\0", "")

    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        try:
            return environment[name]
        except KeyError:
            key = ".".join(str(part) for part in path)
            problems.append(Problem(key, lines.get(path, 0), f"the environment variable {name} is not set"))
            return ""

    return _VARIABLE.sub(replacement, value)

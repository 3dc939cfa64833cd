"""Every setting in force, for `penstock check`. Secrets are never shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from penstock.operations.config.model import Config

_SECRET_KEYS = ("password", "secret", "token")


@dataclass(frozen=True, slots=True)
class Finding:
    """One setting in force, and its value as text."""

    key: str
    value: str


def describe(config: Config) -> list[Finding]:
    """Every setting in force, defaults included, in the file's order."""
    return [Finding(key, text) for key, text in _walk(config.model_dump(), "")]


def _walk(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _walk(child, f"{key}.{name}" if key else str(name))
    elif value not in (None, [], (), {}):
        hidden = isinstance(value, SecretStr) or any(word in key.rpartition(".")[2] for word in _SECRET_KEYS)
        yield key, "(hidden)" if hidden else str(value)

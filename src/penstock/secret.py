"""Secrets: texts that a program needs and nobody may read.

A `Secret` shows itself as `***` wherever it is printed, formatted or dumped, cannot be pickled, and from its creation on
every log line and every message to the run is written without it. It leaves the process in two ways only: on the standard
input of a child of our own (`revealed`), and in a file that Spark or its tasks read and only this user can open.

Which settings are secrets is decided by their place in the configuration, and in `spark:`, whose keys are Spark's, by the
whole key and by credentials inside of the value (`is_secret_setting`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from penstock.observe.logging import REDACTED, hide, redact

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

HIDDEN_CHARS_MIN = 4  # hiding what is shorter would make log lines unreadable
_short: set[str] = set()  # secrets that are not hidden in log lines; no child's environment has one all the same

# In the syntax that Java's and Python's regular expressions share: these are Spark's `spark.redaction.regex`, too.
SECRET_KEY_PATTERN = r"(?i)secret|passw|passphrase|pwd|token|credential|private.?key|access.?key|account.?key|api.?key|encryption.?key|[.]sas[.]"
CREDENTIALS_PATTERN = r"://[^/\s]*:[^/\s]*@|https?://[^/\s@]+@|Bearer\s+\S"
_SECRET_KEY = re.compile(SECRET_KEY_PATTERN)
_SECRET_VALUE = re.compile(rf"(?i:{CREDENTIALS_PATTERN}|({SECRET_KEY_PATTERN.removeprefix('(?i)')})[\w.-]*\s*=)")
# Clouds' own libraries read these by themselves; who sets them means the processes of the flow.
_CLOUD_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")
# A process needs these; that a short password is a part of one as well (`root` of HOME) tells nobody anything.
_PLACES = re.compile(r"\w*(HOME|PATH|CONF_DIR)|PWD|TMPDIR|SHELL|USER|LOGNAME|LANG|VIRTUAL_ENV|PYSPARK_PYTHON")


class Secret:
    """A text that only `reveal` gives."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) >= HIDDEN_CHARS_MIN:
            hide(text)
        elif text:
            _short.add(text)

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return REDACTED

    __str__ = __repr__

    def __format__(self, specification: str) -> str:
        return REDACTED

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is never pickled")

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            cls._validated,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda _secret: REDACTED, return_schema=core_schema.str_schema(), when_used="json"
            ),
        )

    @classmethod
    def _validated(cls, value: Any) -> Secret:
        if isinstance(value, Secret):
            return value
        if not isinstance(value, str):
            raise ValueError("must be a text; put it in quotes")
        return cls(value)


def revealed(value: Any) -> Any:
    """`value` with the text of every secret in it, for the standard input of a child of our own and for nothing else."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return {key: revealed(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [revealed(inner) for inner in value]
    return value


def is_secret_key(key: str) -> bool:
    """Whether a setting of this name holds a secret: the whole name counts (`hadoop.fs.s3a.secret.key`)."""
    return _SECRET_KEY.search(key) is not None


def is_secret_value(value: str) -> bool:
    """Whether a text that is not a secret as a whole has one inside: `//user:password@host`, `password=…`."""
    return _SECRET_VALUE.search(value) is not None


def is_secret_setting(key: str, value: str) -> bool:
    """Whether Spark's setting is a secret. A switch (`security.credentials.hive.enabled`) is none, whatever its name."""
    return value.lower() not in ("true", "false") and (is_secret_key(key) or is_secret_value(value))


def harmless(url: str) -> str:
    """The URL without what may be a secret (user, password, query, fragment), for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{url.partition('://')[0]}://{REDACTED}"
    if not parts.scheme and not parts.netloc:
        return url.partition("?")[0]
    rest = f"?{REDACTED}" if parts.query or parts.fragment else ""
    user = f"{REDACTED}@" if "@" in parts.netloc else ""
    return f"{parts.scheme}://{user}{parts.netloc.rpartition('@')[2]}{parts.path}{rest}"


def environment_without_secrets(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for a child: without the variables that hold a secret of the configuration, whatever their names.

    A child gets its secrets on standard input. The variables of a cloud's own libraries stay, and those that say where
    things are.
    """
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_CLOUD_VARIABLES)
        or _PLACES.fullmatch(name)
        or (redact(value) == value and value not in _short)
    }

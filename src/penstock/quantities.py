"""Sizes and times as people write them in the configuration: `64MiB`, `24h`, or a plain number of bytes or seconds."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, SerializationInfo

_SIZE_UNITS = {
    "": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50, "eib": 1 << 60,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15, "eb": 10**18,
}  # fmt: skip
_SIZE_MAX = 1 << 50
_TIME_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def _quantity(value: Any, units: dict[str, Any], example: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in units:
        raise ValueError(f"{value!r} is not a quantity such as {example}")
    return float(match[1]) * float(units[match[2].lower()])


def parse_size(value: Any) -> int:
    """Bytes from `64MiB`, `10kB` or a number."""
    size = round(_quantity(value, _SIZE_UNITS, "64MiB"))
    if size > _SIZE_MAX:
        raise ValueError(f"{value} is too large: at most {shown_size(_SIZE_MAX)}")
    return size


def shown_size(size: int) -> str:
    """As people write it: `64KiB`; plain bytes where no unit fits."""
    for unit, name in ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def is_size(value: object) -> bool:
    """Whether somebody wrote a size with its unit."""
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    return match is not None and match[2].lower() in _SIZE_UNITS and match[2] != ""


def parse_seconds(value: Any) -> float:
    """Seconds from `60s`, `5m`, `250ms`, `7d` or a number."""
    return _quantity(value, _TIME_UNITS, "60s")


def shown_seconds(seconds: float) -> str:
    """As people write it: `5m`, `250ms`; plain seconds where no larger unit fits."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds > unit and seconds % unit == 0:
            return f"{seconds // unit:g}{name}"
    return f"{seconds * 1000:g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


def _size_dumped(value: Any, info: SerializationInfo) -> Any:
    return shown_size(value) if info.context is AS_WRITTEN else value


def _seconds_dumped(value: Any, info: SerializationInfo) -> Any:
    return shown_seconds(value) if info.context is AS_WRITTEN else value


AS_WRITTEN = {"quantities": "as people write them"}  # the context of a `model_dump` that is for people
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(_size_dumped)]
Seconds = Annotated[float, BeforeValidator(parse_seconds), PlainSerializer(_seconds_dumped)]

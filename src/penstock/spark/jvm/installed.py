"""Which pyspark is installed, asked without importing it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from penstock.errors import BadInput

_VERSION = re.compile(r"""^__version__.*=\s*["'](\d+)\.(\d+)[^"']*["']""", re.MULTILINE)


def spark_home() -> Path:
    """Where it has its Spark. Raises `BadInput` where there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BadInput("pyspark is not installed", hint="pip install 'penstock[spark]'")
    return Path(spec.origin).parent


def pyspark_version() -> tuple[int, int] | None:
    """As its file says, whether or not pip installed it; None where it does not say."""
    try:
        found = _VERSION.search((spark_home() / "version.py").read_text(encoding="utf-8"))
    except (OSError, BadInput):
        return None
    return (int(found[1]), int(found[2])) if found else None

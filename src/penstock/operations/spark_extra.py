"""Whether Spark is installed beside Penstock, asked before anything is started that needs it.

Spark is an extra: clusters bring their own, and reading a log or a binlog needs none. A run without it would capture
into the log for ever and deliver nothing.
"""

from __future__ import annotations

import importlib.util

from penstock.errors import BadInput

PACKAGES = ("pyspark", "pandas")  # the extra `spark`


def require_spark() -> None:
    """Raises `BadInput`, which is exit code 2, unless the packages of the extra are there. Imports none of them."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(
            f"Spark is not installed here ({', '.join(missing)} missing)",
            hint="pip install 'penstock[spark]', or 'penstock[spark,java]' where there is no Java 17 or newer",
        )

"""Whether the packages are there that Penstock does not bring along, asked before anything is started that needs them.

Spark is an extra: clusters bring their own, and reading a log or a binlog needs none. A run without it would capture
into the log for ever and deliver nothing. The other extras are needed only where the configuration asks for them.
"""

from __future__ import annotations

import importlib.util

from penstock.errors import BadInput
from penstock.operations.config.model import Config
from penstock.spark.jvm.installed import pyspark_version
from penstock.spark.jvm.java import choose_java

PACKAGES = ("pyspark", "pandas")  # the extra `spark`
PYSPARK_MIN, PYSPARK_BELOW = (
    (3, 5),
    (5, 0),
)  # as in pyproject.toml: pip does not look at it where the extra is not asked for
_HINT = "pip install 'penstock[spark]', or 'penstock[spark,java]' where there is no Java 17 or newer"


def require_extras(config: Config) -> None:
    """`require_spark`, and the same for what this configuration needs besides."""
    require_spark()
    if config.state.engine == "rocksdb":
        _require("rocksdict", "rocksdb", "state.engine: rocksdb")
    if config.log.offload is not None and not config.log.offload.url.startswith("file:"):
        _require("obstore", "objects", "log.offload to an object store")


def _require(package: str, extra: str, what: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise BadInput(
            f"{what} needs the package {package}, which is not installed", hint=f"pip install 'penstock[{extra}]'"
        )


def require_spark() -> None:
    """Raises `BadInput`, which is exit code 2, unless the packages of the extra are there, in a version that works, and a
    Java for them. Imports none of them."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise BadInput(f"Spark is not installed here ({', '.join(missing)} missing)", hint=_HINT)
    version = pyspark_version()
    if version is not None and not PYSPARK_MIN <= version < PYSPARK_BELOW:
        wanted = f"{'.'.join(map(str, PYSPARK_MIN))} or newer and below {PYSPARK_BELOW[0]}"
        raise BadInput(f"pyspark is {'.'.join(map(str, version))} here, and Penstock needs {wanted}", hint=_HINT)
    choose_java()

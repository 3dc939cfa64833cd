"""The SQL session of a process, and the statements that it has understood.

Made when the first rule needs it: no other flow pays for it. What a function gives must not depend on where and when it runs,
so what such things hang on in Spark is fixed here, whatever `spark:` says.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import NotSupported
from penstock.rules.sql.rows import BadSql, Sql, SqlPlan, plan_key
from penstock.schema.model import Column

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

MISFIT = "!"  # before the reason why a statement does not fit, in place of a plan

_FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # a value that does not fit is an error, never another value
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.caseSensitive": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


class SparkSql(Sql):
    """Asks Spark about statements, and keeps the answers. For any thread; `lock` is for whoever uses the session."""

    def __init__(self, context: SparkContext) -> None:
        from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

        try:  # as Spark does before it hands rows to Python, in each query
            require_minimum_pandas_version()
            require_minimum_pyarrow_version()
        except ImportError as error:
            raise NotSupported(
                f"rules with sql need pandas and pyarrow as this Spark wants them: {error}",
                hint="pip install 'penstock[spark]'; pyspark 3.5 on Python 3.12 or newer needs setuptools besides",
            ) from None
        from pyspark.sql import SparkSession

        self.session: SparkSession = SparkSession(context).newSession()
        # pyspark's own, which prints every refusal with its stack.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        for key, value in _FIXED.items():
            self.session.conf.set(key, value)
        self.lock = threading.Lock()
        self.known: dict[str, str] = {}

    def plan(self, statement: str, columns: Sequence[Column]) -> SqlPlan:
        from penstock.spark.sql.statement import analysed

        key = plan_key(statement, columns)
        with self.lock:
            if key not in self.known:
                try:
                    self.known[key] = analysed(self.session, statement, columns).to_json()
                except BadSql as error:
                    self.known[key] = f"{MISFIT}{error.message}"
            return plan_of(self.known[key])


def plan_of(text: str) -> SqlPlan:
    """Of what `SparkSql.known` has. Raises `BadSql`."""
    if text.startswith(MISFIT):
        raise BadSql(text.removeprefix(MISFIT))
    return SqlPlan.from_json(text)

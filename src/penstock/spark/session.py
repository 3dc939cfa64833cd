"""The Spark session: every setting in one place, and why it is there.

Several settings below are internal to Spark and worth a lot: measured with pyspark 4.3, the fixed cost of a micro-batch
falls from 200 ms to about 60 ms. `bench/` shows whether they still help. The user's own `spark:` settings win over
these.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import BadInput, Unavailable
from penstock.spark.java import find_java_home
from penstock.wire import socket_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOCKET_NAME_CHARS = 40  # Spark's names are a dot and a UUID (37 characters), with a little to spare
MASTER = "local[*,3]"  # three attempts for a task: with plain local[*] the first dead worker ends the query

_OURS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",  # there is nothing to adapt: one stage, one row a task
    "spark.sql.shuffle.partitions": "2",
    # The checkpoint is scratch (each run starts from the keeper's facts): no checksums, no temporary names.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "100ms",  # idle: 1.4 % of a core; at the default 10 ms: 10 %
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Between the JVM and Python workers.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "penstock.spark.daemon",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}

_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",  # a small heap of short-lived objects: no threads for collecting it
    "-XX:TieredStopAtLevel=1",  # the JVM only schedules; the quick compiler starts sooner and is enough
    "-XX:-UsePerfData",
    "-Xshare:auto",
)

_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def scratch_directory(state_dir: Path) -> Path:
    """Where all of Spark's files go; may be deleted while nothing runs."""
    return state_dir.absolute() / "run" / "spark"


def socket_directory(scratch: Path) -> Path:
    """Where Spark's own Unix sockets go: a path short enough for a socket's address, however long the state directory's
    is."""
    return socket_path(scratch / "tmp", "0" * _SOCKET_NAME_CHARS).parent


def session_settings(state_dir: Path, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings of the session: ours, overridden by the user's (whose keys may leave out the leading `spark.`)."""
    scratch = scratch_directory(state_dir)
    settings = dict(_OURS)
    settings["spark.master"] = MASTER
    settings["spark.app.name"] = "penstock"
    settings["spark.local.dir"] = str(scratch / "local")
    settings["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
    settings["spark.python.unix.domain.socket.dir"] = str(socket_directory(scratch))
    for key, value in (own or {}).items():
        settings[key if key.startswith("spark.") else f"spark.{key}"] = str(value)
    java = [*_JAVA_OPTIONS, f"-Dlog4j2.configurationFile=file:{scratch / 'log4j2.properties'}"]
    java.append(f"-Djava.io.tmpdir={socket_directory(scratch)}")
    if users := settings.get("spark.driver.extraJavaOptions"):
        java.append(users)  # the last one wins in the JVM
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    return settings


def start_session(state_dir: Path, own: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process, with the `penstock` data source registered. Takes seconds: a JVM starts.

    The JVM inherits this process's standard output and error; in the driver process both lead to standard error.
    """
    scratch = scratch_directory(state_dir)
    for directory in (scratch / "local", scratch / "warehouse", socket_directory(scratch)):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (scratch / "log4j2.properties").write_text(_LOG4J.format(log=scratch / "spark.log"))
    settings = session_settings(state_dir, own)
    os.environ["JAVA_HOME"] = str(find_java_home(scratch))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise BadInput("pyspark is not installed", hint="pip install 'penstock[spark]'") from error
    # With a SPARK_HOME that points at another Spark, pyspark would start that one and fail in obscure ways.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)

    from penstock.spark.source import PenstockSource

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise Unavailable(
            f"Spark did not start: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            hint=f"its log is {scratch}/spark.log",
        ) from error
    session.dataSource.register(PenstockSource)
    return session

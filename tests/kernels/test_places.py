"""Kernels work wherever Penstock may write, and where it may not; nobody runs what another user could have written."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.files import private
from penstock.kernels import places
from tests.support.waiting import LIMIT_SECONDS

SOURCE = "from penstock.kernels.compile import kernel\n\n@kernel\ndef twice(x):\n    return 2 * x\n"
CALL = "from mine.here import twice\nfrom mine.there import twice as too\nprint(twice(21) + too(0), sum(twice.stats.cache_hits.values()))"
BECOME_ANOTHER = (
    "import numba, os; numba.njit(lambda x: 2 * x)(1); os.setgroups([]); os.setgid(54321); os.setuid(54321)"
)
OTHER = 54_321  # a user that owns nothing here
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
SOURCES = Path("/usr/lib/python/penstock/log")


class World:
    """A home, a directory for temporary files, and an environment that names them."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.tmp = root, root / "home", root / "tmp"
        self.home.mkdir(mode=0o700)
        self.tmp.mkdir()
        self.tmp.chmod(0o1777)
        self.environment = {"HOME": str(self.home), "TMPDIR": str(self.tmp)}
        self.own = self.tmp / f"penstock-kernels-{os.geteuid()}"

    def run(self, before: str = "", **environment: str) -> tuple[str, list[str]]:
        """(what two kernels give and how often one was loaded, the warnings) in a fresh process."""
        source = self.root / "src" / "mine"
        if not source.exists():
            source.mkdir(parents=True)
            for name in ("__init__.py", "here.py", "there.py"):
                (source / name).write_text(SOURCE if "here" in name else "")
        inherited = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
        path = os.pathsep.join([str(source.parent), *sys.path])
        log = "import logging; logging.basicConfig(format='WARNED %(message)s')\nimport penstock.kernels.compile"
        done = subprocess.run(
            [sys.executable, "-B", "-c", "\n".join((log, before, CALL))],
            env={**inherited, "PYTHONPATH": path, **self.environment, **environment},
            cwd="/",
            check=False,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), [line for line in done.stderr.splitlines() if "WARNED" in line]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """In a directory that every user can reach, and that only its owner can write to."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    world = World(root)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(places, "_warned", False)
    yield world
    shutil.rmtree(root)


def place() -> Path | None:
    return places.place_for.__wrapped__(SOURCES)


def test_the_places_in_their_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place() is not None
    assert [p.parent for p in [place()] if p] == [world.home / ".cache" / "penstock" / "kernels"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(world.root / "xdg"))
    assert [p.parent for p in [place()] if p] == [world.root / "xdg" / "penstock" / "kernels"]
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(world.root / "named"))
    assert [p.parent for p in [place()] if p] == [world.root / "named"]


def test_without_a_home_a_private_temporary_directory_serves(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", "/proc/nowhere")
    found = place()
    assert found is not None
    assert found.parent == world.own
    assert stat.S_IMODE(world.own.stat().st_mode) == 0o700
    assert not caplog.records, "nothing is lost by it"


def test_where_there_is_no_place_one_warning_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", "/proc/nowhere")
    world.own.write_text("no directory")
    assert place() is place() is None
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "no place to keep them" in record.getMessage()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_directory_that_others_may_write_to_is_not_used(
    world: World, mode: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(private, "_is_own_group", lambda _: False)
    named = world.root / "named"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(named))
    inner = place()
    assert inner is not None
    for spoilt in (named, inner):
        spoilt.chmod(mode)
        found = place()
        assert found is not None
        assert found.is_relative_to(world.home), "the next place is used"
        spoilt.chmod(0o700)
    assert f"{named} is not used: it can be written to by other users" in caplog.messages[0]
    world.root.chmod(0o777)
    assert place() is None, "others may put another directory in its place"


@needs_root
@pytest.mark.usefixtures("caplog")
def test_somebody_elses_directory_is_not_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """He who makes /tmp/penstock-kernels-<uid> first must not have his machine code run."""
    monkeypatch.setenv("HOME", "/proc/nowhere")
    inner = place()
    assert inner is not None
    for spoilt in (world.own, inner):
        os.chown(spoilt, OTHER, OTHER)
        assert place() is None
        with pytest.raises(PermissionError, match=r"belongs to the user \w+"):
            places.refuse_others(inner)  # as before each use of a place that was good once
        os.chown(spoilt, 0, 0)


@needs_root
def test_somebody_elses_link_in_the_temporary_directory_is_not_followed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/proc/nowhere")
    (world.root / "private").mkdir(mode=0o700)
    world.own.symlink_to(world.root / "private")
    os.chown(world.own, OTHER, OTHER, follow_symlinks=False)
    assert place() is None
    assert not list((world.root / "private").iterdir())


def test_kernels_are_loaded_from_the_place_and_a_damaged_one_is_compiled_anew(world: World) -> None:
    assert world.run() == ("42 0", [])
    assert world.run() == ("42 1", [])
    assert not list((world.root / "src").rglob("*.nb?")), "nothing is kept beside the sources"
    for file in world.home.rglob("*.nb?"):
        file.write_bytes(file.read_bytes()[:20])  # as a power cut may leave it
    answer, [warning] = world.run()
    assert answer == "42 0"
    assert "damaged" in warning
    assert world.run() == ("42 1", []), "it was mended"


def test_without_a_place_kernels_are_compiled_in_memory_with_one_warning(world: World) -> None:
    world.own.write_text("no directory")
    answer, [warning] = world.run(HOME="/proc/nowhere", NUMBA_CACHE_DIR="/proc/nowhere")
    assert answer == "42 0"
    assert "no place to keep them" in warning


@needs_root
def test_another_user_with_a_read_only_install_and_no_home(world: World) -> None:
    assert world.run(BECOME_ANOTHER, HOME="/nonexistent") == ("42 0", [])
    assert world.run(BECOME_ANOTHER, HOME="/nonexistent") == ("42 1", [])
    made = world.tmp / f"penstock-kernels-{OTHER}"
    assert (made.stat().st_uid, stat.S_IMODE(made.stat().st_mode)) == (OTHER, 0o700)
    world.own.symlink_to(made)
    answer, [_] = world.run(HOME="/nonexistent/x", XDG_CACHE_HOME="/proc/nowhere")
    assert answer == "42 0", "root does not run what the other user compiled"

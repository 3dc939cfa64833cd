"""Compiling ahead covers the way of a row: a first run of an installation that did so compiles nothing of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.kernels import compiled
from tests.support.waiting import LIMIT_SECONDS

CHECK = """
from penstock.capture.transactions import kernel
from penstock.encode.kernels import lines
from penstock.log.frames import kernels as frames
from penstock.operations.kernels import compile_kernels
from penstock.sources.mysql import packets
from penstock.state.engines.native import kernels as native
assert compile_kernels() >= 5_000
for one in (kernel.cut, frames.check_frames, packets.unpack):
    assert one.signatures, one
for module in (lines, native):
    assert any(getattr(value, "signatures", ()) for value in vars(module).values()), module
"""


def test_the_way_of_a_row_is_compiled() -> None:
    subprocess.run([sys.executable, "-c", CHECK], check=True, timeout=LIMIT_SECONDS)


def test_an_installation_knows_that_it_was_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiled, "place_for", lambda _: tmp_path)
    monkeypatch.setattr(compiled, "refuse_others", lambda _: None)
    assert not compiled.are_compiled()
    compiled.note_compiled()
    assert compiled.are_compiled()
    monkeypatch.setattr(compiled, "__version__", "0.2.0")  # an upgrade in place
    assert not compiled.are_compiled()


def test_without_a_place_for_them_they_are_never_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "place_for", lambda _: None)
    compiled.note_compiled()
    assert not compiled.are_compiled()

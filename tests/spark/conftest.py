"""A real Spark for the modules that want one, and rigs over it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.jvm.engine import Engine
from penstock.spark.jvm.launch import start_context
from tests.spark.failing import failing_partition
from tests.spark.rig import MakeRig, Rig
from tests.support.java import end_java

_CHANGES = 1500  # of a rig, where the module has no CHANGES of its own


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One for all tests of a module: a JVM takes seconds to start."""
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))  # for the workers
    engine = Engine(start_context(tmp_path_factory.mktemp("spark"), {"master": "local[2,3]"}))
    yield engine
    engine.stop()
    end_java()


@pytest.fixture
def make_rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeRig]:
    """Rigs whose task is the real one, but for a test's wish."""
    changes = getattr(request.module, "CHANGES", _CHANGES)
    made: list[Rig] = []

    def make(**arguments: Any) -> Rig:
        made.append(Rig(tmp_path, **{"changes": changes, **arguments}))
        made[-1].task = failing_partition
        return made[-1]

    yield make
    for rig in made:
        rig.close()

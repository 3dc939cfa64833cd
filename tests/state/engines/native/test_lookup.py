"""Lookups in runs: Python and compiled code agree, and a few lookups do not import numba."""

from __future__ import annotations

import random
import subprocess
import sys

import google_crc32c
import pytest

from penstock.files.memory import MemoryFiles
from penstock.log import StateChange
from penstock.state.engines.native.base import RunsBase
from penstock.state.engines.native.engine import NativeEngine
from penstock.state.engines.native.format import HASH_FACTOR, U32_MASK, salt_of
from penstock.state.engines.native.lookup import getter
from penstock.state.engines.overlay import MISSING
from penstock.state.settings import StateSettings
from tests.state.engines.native.memory import at, opened
from tests.state.engines.opener import Opener
from tests.support.waiting import LIMIT_SECONDS


@pytest.mark.parametrize("seed", range(3))
def test_lookups_in_python_and_compiled_agree(seed: int) -> None:
    chosen = random.Random(seed)
    files = MemoryFiles()
    engine = opened(
        files,
        settings=StateSettings(merge_in_background=False, merge_ratio=1e9, merge_runs_max=99, spare_ratio_max=1e9),
    )
    keys = [chosen.randbytes(chosen.choice((0, 1, 4, 16, 40))) for _ in range(3000)]
    namespaces = (1, 2, 1 + (1 << 32))  # the first and the last have the same hashes
    for number in range(4):
        engine.apply(
            [
                StateChange(chosen.choice(namespaces), key, None if chosen.random() < 0.2 else chosen.randbytes(chosen.choice((0, 90, 4100))))
                for key in chosen.sample(keys, 900)
            ]
        )  # fmt: skip
        engine.write(engine.freeze(), at(number))
    engine.close()
    engine = opened(files, settings=StateSettings(merge_in_background=False))
    base = engine._stack.base  # type: ignore[attr-defined]
    assert isinstance(base, RunsBase)
    assert len(base.runs) == 4
    with engine.create_snapshot() as snapshot:
        for namespace in (*namespaces, 3):
            iterated = dict(snapshot.iterate(namespace))
            fresh = opened(files)
            assert isinstance(fresh, NativeEngine)
            runs = fresh._checkpoints.kept[0].runs
            caches = [run.cache for run in runs[::-1]]
            compiled = getter(namespace, runs[::-1], caches)
            in_python = [run.finder(namespace, run.cache) for run in runs[::-1]]
            assert namespace == 3 or compiled(keys[0]) is ..., "a page that nobody checked"
            for key in [*keys, b"never there", b"x" * 5000]:
                assert _python(in_python, namespace, key) == iterated.get(key), key
                assert compiled(key) == iterated.get(key), key


def _python(finders: list[object], namespace: int, key: bytes) -> bytes | None:
    for find in finders:
        if find is not None:
            value = find(key, (google_crc32c.value(key) ^ salt_of(namespace)) * HASH_FACTOR & U32_MASK)  # type: ignore[operator]
            if value is not MISSING:
                return value  # type: ignore[no-any-return]
    return None


def test_an_open_and_a_few_reads_do_without_numba(native: Opener) -> None:
    """Numba takes half a second to import; a process that opens a state and reads a little must not wait for it."""
    engine = native()
    engine.apply([StateChange(1, b"a", b"b")])
    engine.write(engine.freeze(), at(0))
    engine.close()
    program = (
        "import sys; from pathlib import Path\n"
        "from penstock.state.engines.opening import open_engine\n"
        f"engine = open_engine('native', Path({str(native.directory)!r}))\n"
        "assert engine.get(1, b'a') == b'b' and engine.get(1, b'b') is None\n"
        "assert list(engine.create_snapshot().iterate(1)) == [(b'a', b'b')]\n"
        "assert list(engine.verify()) == []\n"
        "sys.exit('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_SECONDS)

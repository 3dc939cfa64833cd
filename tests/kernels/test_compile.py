"""A kernel is loaded from the cache on disk, until something that its compiled code includes was edited."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.fresh import run_fresh

SOURCES = {
    "__init__.py": "",
    "numbers.py": "from enum import IntEnum\n\nSTEP = 3\n\nclass Shift(IntEnum):\n    UP = 5\n",
    "copying.py": (
        "from numba import types\nfrom numba.extending import intrinsic\n\n"
        "def _doubled(typing, value):\n"
        "    def generate(context, builder, signature, arguments):\n"
        "        return builder.mul(arguments[0], arguments[0].type(2))\n"
        "    return types.int64(types.int64), generate\n\n"
        "doubled = intrinsic(_doubled)\n"
    ),
    "deepest.py": (
        "from penstock.kernels.compile import kernel\nfrom pack.copying import doubled\n\n"
        "@kernel\ndef deepest(x):\n    return doubled(x)\n"
    ),
    "callee.py": (
        "from penstock.kernels.compile import kernel\n\n"
        "@kernel\ndef callee(x):\n    return below(x)\n\n"
        "from pack.deepest import deepest\n\n"
        "@kernel\ndef below(x):\n    return deepest(x)\n"
    ),
    "caller.py": (
        "from penstock.kernels.compile import kernel\nfrom pack.callee import callee\nfrom pack.numbers import STEP, Shift\n\n"
        "@kernel\ndef caller(x):\n    return callee(x) + STEP + Shift.UP\n"
    ),
    "indirect.py": (
        "from penstock.kernels.compile import kernel\nfrom pack import numbers, deepest\n\n"
        "def closed_over(inner):\n    @kernel\n    def closure(x):\n        return inner(x)\n    return closure\n\n"
        "held = closed_over(deepest.deepest)\n\n"
        "@kernel\ndef indirect(x):\n    return held(x) + deepest.deepest(x) + numbers.STEP\n"
    ),
}
PROGRAM = "from pack.caller import caller as c; print(c(10), sum(c.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "pack").mkdir()
    for name, text in SOURCES.items():
        (tmp_path / "pack" / name).write_text(text)
    return tmp_path


def called(package: Path, program: str = PROGRAM) -> tuple[int, bool]:
    """What the kernel gives for 10 in a fresh process, and whether its code came from the cache."""
    output = fresh(package, program)
    return int(output[0]), output[1] == "1"


def fresh(package: Path, program: str) -> list[str]:
    """What a process prints whose cache nobody else had before: pytest gives the name of a temporary directory again, and the
    user's own cache goes by names."""
    path = os.pathsep.join([str(package), *sys.path])
    return run_fresh(program, cwd=package, PYTHONPATH=path, NUMBA_CACHE_DIR=str(package / "cache")).split()


def edit(package: Path, name: str, before: str, after: str) -> None:
    file = package / "pack" / name
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


def test_an_unchanged_kernel_is_loaded_and_an_edit_of_anything_that_it_includes_is_noticed(package: Path) -> None:
    assert called(package) == (28, False)
    assert called(package) == (28, True)
    edit(package, "copying.py", "(2)", "(4)")  # an intrinsic, three files away
    assert called(package) == (48, False)
    edit(package, "deepest.py", "return doubled(x)", "return doubled(x) + 100")
    assert called(package) == (148, False)
    edit(package, "numbers.py", "STEP = 3", "STEP = 4")
    assert called(package) == (149, False)
    edit(package, "numbers.py", "UP = 5", "UP = 6")
    assert called(package) == (150, False)
    assert called(package) == (150, True)


def test_what_a_kernel_reaches_through_a_module_or_a_closure_counts_too(package: Path) -> None:
    program = PROGRAM.replace("pack.caller import caller", "pack.indirect import indirect")
    assert called(package, program) == (43, False)
    assert called(package, program) == (43, True)
    edit(package, "deepest.py", "return doubled(x)", "return doubled(x) + 100")
    assert called(package, program) == (243, False)
    edit(package, "numbers.py", "STEP = 3", "STEP = 4")
    assert called(package, program) == (244, False)


def test_code_that_was_imported_before_its_file_was_replaced_is_not_kept_for_the_new_file(package: Path) -> None:
    upgrade = (
        "import pathlib, pack.caller; file = pathlib.Path('pack/deepest.py'); "
        "file.write_text(file.read_text().replace('return doubled(x)', 'return doubled(x) + 100')); "
    )
    assert called(package, upgrade + PROGRAM) == (28, False), "what this process imported is what it runs"
    assert called(package) == (128, False)


def test_kernels_run_as_plain_python_where_numba_is_told_to_leave_them() -> None:
    program = "from penstock.kernels.compile import kernel\nprint(kernel(lambda x: x + 1)(1))"
    assert run_fresh(program, NUMBA_DISABLE_JIT="1").strip() == "2"


ALLOCATES = (
    "import numpy as np\nfrom penstock.kernels.compile import kernel\n\n"
    "@kernel\ndef counted(texts, n):\n    out = np.zeros(n, np.int64)\n"
    "    for at in range(len(texts)):\n        out[texts[at] % n] += 1\n    return out, n\n\n"
    "@kernel\ndef fails(n):\n    if n > 1:\n        raise ValueError('too large')\n    return n\n\n"
    "@kernel\ndef hashes(text):\n    return hash(text)\n"
)


def test_a_loaded_kernel_works_without_all_that_numba_can_compile(package: Path) -> None:
    (package / "pack" / "allocates.py").write_text(ALLOCATES)
    program = (
        "import sys, numpy as np, pack.allocates as a\n"
        "out, n = a.counted(np.arange(10, dtype=np.uint8), 3)\n"
        "try:\n    a.fails(2)\nexcept ValueError as error:\n    said = str(error)\n"
        "print(sum(a.counted.stats.cache_hits.values()), *out.tolist(), n, said.replace(' ', '_'), "
        "'numba.np.linalg' in sys.modules)\n"
    )
    assert fresh(package, program) == ["0", "4", "3", "3", "3", "too_large", "True"]
    assert fresh(package, program) == ["1", "4", "3", "3", "3", "too_large", "False"]


def test_a_kernel_that_hashes_is_compiled_anew_because_it_needs_what_is_not_loaded(package: Path) -> None:
    (package / "pack" / "allocates.py").write_text(ALLOCATES)
    program = "import pack.allocates as a\nprint(a.hashes('ab') == hash('ab'), sum(a.hashes.stats.cache_hits.values()))"
    assert fresh(package, program) == ["True", "0"]
    assert fresh(package, program) == ["True", "0"]

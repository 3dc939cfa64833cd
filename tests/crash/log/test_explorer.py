"""Sixty seconds of crash states on CI's machines, a few on others. The seed and the count are printed.

`PENSTOCK_CRASH_SEED` and `PENSTOCK_CRASH_SECONDS` (of CPU) say otherwise; `make soak` looks at a million.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.conftest import is_strict
from tests.crash.log.explorer import explore

STATES_MIN = 20_000
SECONDS = 60.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_crash_loses_what_was_acknowledged(capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("PENSTOCK_CRASH_SEED") or random.randrange(1 << 40))
    seconds = float(os.environ.get("PENSTOCK_CRASH_SECONDS") or (SECONDS if is_strict() else 5.0))
    outcome = explore(seed, seconds=seconds, at_least=STATES_MIN if seconds >= SECONDS else 0)
    with capsys.disabled():
        print(f"\n{outcome}")
    assert outcome.again > outcome.states // 10


def test_the_same_seed_looks_at_the_same_states() -> None:
    first, second = explore(7, states=150), explore(7, states=150)
    assert (first.states, first.again, first.programs) == (second.states, second.again, second.programs)

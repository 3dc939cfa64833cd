"""Sixty seconds of crash states of bucket state on CI's machines, a few on others. The seed and the count are printed.

`PENSTOCK_CRASH_SEED` and `PENSTOCK_CRASH_SECONDS` (of CPU) say otherwise; `make soak` looks at a million.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.conftest import is_strict
from tests.crash.state.explorer import explore

STATES_MIN = 20_000
SECONDS = 60.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_recovered_state_is_a_prefix_of_the_acknowledged_batches(capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("PENSTOCK_CRASH_SEED") or random.randrange(1 << 40))
    seconds = float(os.environ.get("PENSTOCK_CRASH_SECONDS") or (SECONDS if is_strict() else 5.0))
    outcome = explore(seed, seconds=seconds, at_least=STATES_MIN if seconds >= SECONDS else 0)
    with capsys.disabled():
        print(f"\nstate: {outcome}")
    assert outcome.again > outcome.states // 20


def test_the_same_seed_looks_at_the_same_states() -> None:
    first, second = explore(7, states=100), explore(7, states=100)
    assert (first.states, first.again, first.programs) == (second.states, second.again, second.programs)

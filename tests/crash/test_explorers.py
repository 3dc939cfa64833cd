"""Crash states of random programs, as many as the budget has. The seed and the count are printed.

`PENSTOCK_SEED` repeats a run. `make soak` looks at a million states of each explorer.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.framework.explorer import Explorer
from tests.crash.log.explorer import EXPLORER as LOG
from tests.crash.state.explorer import EXPLORER as STATE
from tests.support import budget

EACH = pytest.mark.parametrize("explorer", [LOG, STATE], ids=lambda explorer: explorer.name)


@EACH
@pytest.mark.slow
@pytest.mark.timeout(3600)  # a larger budget on a busy machine
def test_no_crash_loses_what_was_acknowledged(explorer: Explorer[Any], capsys: pytest.CaptureFixture[str]) -> None:
    outcome = explorer.explore(budget.chosen_seed(), states=budget.CRASH_STATES)
    with capsys.disabled():
        print(f"\n{explorer.name}: {outcome}")
    assert outcome.again > outcome.states // 20


@EACH
def test_the_same_seed_looks_at_the_same_states(explorer: Explorer[Any]) -> None:
    first, second = explorer.explore(7, states=100), explorer.explore(7, states=100)
    assert (first.states, first.again, first.programs) == (second.states, second.again, second.programs)

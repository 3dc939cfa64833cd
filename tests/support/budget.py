"""How long the tests explore: `PENSTOCK_BUDGET` is `quick` (the default, `make test`), `ci` (`.ci/run`) or `soak` (`make soak`).

Every test runs under every budget and asserts the same; a larger budget only looks at more random cases. `quick` and `ci`
look at the same cases each time, so that a change is judged by what it changed; `soak` looks for new ones.
"""

from __future__ import annotations

import os
import random

NAMES = ("quick", "ci", "soak")
NAME = os.environ.get("PENSTOCK_BUDGET") or NAMES[0]
if NAME not in NAMES:
    raise ValueError(f"PENSTOCK_BUDGET is {NAME!r}; it may be {', '.join(NAMES)}")


def _by_budget(*, quick: int, ci: int, soak: int) -> int:
    return {"quick": quick, "ci": ci, "soak": soak}[NAME]


def scaled(ci: int) -> int:
    """For a test whose number of random cases is its own: half of it, all of it, or ten times as many."""
    return _by_budget(quick=-(-ci // 2), ci=ci, soak=10 * ci)


# Crash explorers, of the log and of state each. `make soak` runs them by `python -m tests.crash` in all cores instead.
CRASH_STATES = _by_budget(quick=2_000, ci=20_000, soak=20_000)
# Operations of a run whose memory is watched (tests/log/test_soak.py).
SOAK_OPERATIONS = _by_budget(quick=3_000, ci=20_000, soak=100_000)
# Real power cuts (of a mounted file system), kills (of a forked writer, of a started one), and system calls that fail.
CUTS = _by_budget(quick=8, ci=24, soak=500)
KILL_ROUNDS = _by_budget(quick=4, ci=6, soak=60)
FAILED_CALLS = _by_budget(quick=2, ci=4, soak=60)
# Bits flipped in the files of a log (of each file), of a state's checkpoints, and of a metadata store.
LOG_FLIPS = _by_budget(quick=40, ci=200, soak=1_000)
STATE_FLIPS = _by_budget(quick=150, ci=800, soak=4_000)
METADATA_FLIPS = _by_budget(quick=300, ci=1_000, soak=5_000)
# Binlog events that are damaged and decoded.
MUTATED_EVENTS = _by_budget(quick=5_000, ci=50_000, soak=1_000_000)
# Hypothesis: examples of a property, and runs of a state machine against its model.
EXAMPLES = _by_budget(quick=50, ci=100, soak=1_000)
STATE_MODELS = _by_budget(quick=15, ci=40, soak=2_000)
CURSOR_MODELS = _by_budget(quick=20, ci=50, soak=1_000)
# Changes of the demo source that go through a whole run with kills.
DEMO_CHANGES = _by_budget(quick=300_000, ci=600_000, soak=600_000)
# kill -9 of delivery that writes to a real S3 server; of capture that follows a real server, for each family; and the seed
# of what happens meanwhile.
DELIVERY_KILLS = _by_budget(quick=15, ci=50, soak=300)
OUTAGE_SECONDS = _by_budget(quick=3, ci=5, soak=60)  # of that S3 server
# kill -9 of any process of a whole flow, or of its server. `make soak` runs them by `python -m tests.e2e.killed_flow` instead.
FLOW_KILLS = _by_budget(quick=2, ci=12, soak=12)
SERVER_KILLS = _by_budget(quick=14, ci=20, soak=200)
SEED = int(os.environ.get("PENSTOCK_SEED") or (random.randrange(1 << 40) if NAME == "soak" else 20261117))
# Between the transactions of a client that writes to MariaDB while processes are killed: how much there is to deliver.
LOAD_PAUSE_MS = _by_budget(quick=120, ci=30, soak=30)


def chosen_seed() -> int:
    """For the random cases of one test: the seed of `PENSTOCK_SEED`, else a new one in the soak and always the same
    otherwise. It is printed with a failure."""
    print(f"PENSTOCK_SEED={SEED}")
    return SEED

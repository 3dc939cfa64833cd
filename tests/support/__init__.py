"""What tests of several packages share.

| file | what |
|---|---|
| `budget.py` | how many random cases a test looks at, by `PENSTOCK_BUDGET` |
| `waiting.py` | the one limit for every wait on something that happens beside a test |
| `components.py` | a missing real component: skip, or fail in strict mode; the line that says what was skipped |
| `scheduling.py` | which tests run in the same process under `make test`, and which begin first |
| `compiling.py` | several processes compile each numba kernel once |
| `files.py` | file systems with a lock that is not held, or that count what is read |
| `worlds.py` | a log in memory that tests open, fill, kill and open again |
"""

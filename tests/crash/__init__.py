"""Crash tests: the power is cut, calls fail and processes die at any operation; what was acknowledged must be found again.

| where | what |
|---|---|
| `framework/` | what every crash explorer shares; it knows nothing of the log or of state |
| `stepping.py` | the framework's threads-as-coroutines, applied to Penstock's packages |
| `log/` | the log: its world, facts, random programs, explorer and planted bugs; real power cuts, full disks and kills |
| `state/` | bucket state on a log: the same parts |
| `__main__.py` | `python -m tests.crash log` and `python -m tests.crash state` run the explorers by hand |
"""

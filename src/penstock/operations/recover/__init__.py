"""`penstock run --recover-from-sink`: a new state directory from what the sinks say of themselves (docs/recovery.md).

| module | job |
|---|---|
| `points.py` | the progress objects of all sinks, and whether a new log can begin where they say |
| `contents.py` | what a sink has beyond its point |
| `matching.py` | the same changes in the new log: up to where each table is delivered |
| `recover.py` | the steps, in an order that can be cut anywhere |
"""

from penstock.operations.recover.recover import Recovered, recover_from_sinks

__all__ = ["Recovered", "recover_from_sinks"]

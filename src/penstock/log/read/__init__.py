"""Reading a log, from its owner's process or any other.

| file | |
|---|---|
| `run.py` | a run: consecutive verified frames in memory |
| `cache.py` | runs kept in memory for all logs of the process |
| `positions.py` | arithmetic with positions across ledgers |
| `locator.py` | where an entry stands in its ledger |
| `run_reader.py` | reads the runs of one ledger, from any of its copies |
| `time_index.py` | when the entries of the open ledger were written |
| `search.py` | the newest entry that matches, or that is old enough |
| `reader.py` | `LogReader`: the log as a whole |
| `entry_sizes.py` | bytes of each entry, for exact backlogs |
| `tail.py` | waits for the end to move |
"""

"""Dispatchers that are left out of a run, and their way back beside it.

| file | what it does |
|---|---|
| `outside.py` | who takes no part in the regular ranges, and how far each replay has come: what a publish may bring |
| `retry.py` | when tables whose writes failed are tried again |
| `absences.py` | the wish, the dispatchers in the writer, and both of the above |

    regular ─► left out ─► replaying ─► regular
                  ▲            │
                  └────────────┘

A dispatcher is left out by command (`penstock pause SINK --table`), or by its writer, after errors. What was published of it
and is not at the sink is dropped; what is published from then on does not count, and the keeper's cursor waits for it. It comes back with
a new epoch, which is durable first: the driver reads the log again for it alone, in extra ranges beside the
regular ones, from the oldest range that the keeper waits for it in, until both meet. Whatever dies meanwhile ends the run, and
the next one has only the keeper's facts.
"""

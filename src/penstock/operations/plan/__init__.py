"""`penstock plan`: what a run of this configuration would do, before anything is started.

| file | has |
|---|---|
| `plan.py` | the plan itself: what is asked, in which order, and what stands against it |
| `model.py` | its result, which `--json` prints |
| `chosen_tables.py` | the tables of the source, with their rows, sizes and keys |
| `record.py` | what the last run was started with (docs/formats/settings-record.md) |
| `differences.py` | what this configuration changes for a flow that is there already |
"""

"""`penstock verify`: is every change at the sinks, once, and right?

| file | what it does |
|---|---|
| `report.py` | the differences that are found, and the report of a sink |
| `sink_tables.py` | finds a sink's data files, reads them and compares table by table |
| `table_comparison.py` | one table: the rows of its files against the expected changes |
| `log_replay.py` | the changes that a sink must hold, decoded with the schemas by position |
| `source_truth.py` | what the source holds now: the demo's plan, or SELECT on a server |
| `source_comparison.py` | a sink's final rows against the source's |
| `verify.py` | puts them together |
"""

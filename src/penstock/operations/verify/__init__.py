"""`penstock verify`: is every change at the sinks, once, and right?

| file | what it does |
|---|---|
| `report.py` | the differences that are found, and the report of a sink |
| `sink_files.py`, `sink_tables.py` | find a sink's data files; read them and compare table by table |
| `table_comparison.py` | one table: the rows of its files against the expected changes |
| `log_history.py`, `log_replay.py` | the schemas by position; the changes that a sink must hold |
| `source_truth.py`, `source_rows.py` | what the source holds now: the demo's plan, or SELECT on a server |
| `source_comparison.py` | a sink's final rows against the source's |
| `verify.py` | puts them together |
"""

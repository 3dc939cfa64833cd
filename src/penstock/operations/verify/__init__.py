"""`penstock verify`: is every change at the sinks, once, and right?

| file | what it does |
|---|---|
| `report.py` | the differences that are found, and the report of a sink |
| `row_difference.py`, `kernels.py` | which rows of two tables differ; hashes of keys |
| `table_comparison.py` | one table: the rows of its files against the expected changes |
| `line_comparison.py` | the same of a format of lines: bytes, and rows where they differ |
| `sink_files.py` | what lies at a sink: data files that count, schema files, dead letters |
| `sink_tables.py` | reads a sink's data files and compares table by table |
| `companions.py` | what must be there beside the rows: schema files, dead letters, files that were recorded |
| `lineage.py`, `log_replay.py` | the changes that a sink must hold, decoded with the schemas by position; whose they are |
| `source_truth.py` | what the source holds now: the demo's plan, or SELECT on a server |
| `keyed_rows.py` | rows by their key, more than fit into memory |
| `source_comparison.py` | a sink's final rows against the source's |
| `verify.py` | puts them together |
"""

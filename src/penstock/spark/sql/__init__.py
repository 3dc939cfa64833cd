"""Tables with a `sql:` go through Spark SQL before the tasks of their batch run (docs/decisions/0013-sql-runs-before-the-tasks.md).

| file | what it does |
|---|---|
| `share.py` | what a task is told: plain data that travels with its range |
| `statement.py` | a SELECT, by Spark's parser and analyser: what it makes, whether it is a function of one row; the query that runs it |
| `session.py` | the SQL session of a driver, and what it has understood |
| `worker.py` | both ends of the query in a Python worker: rows of a range → … → a file; and the file in the task |
| `query.py` | runs the query of one table; finds the row that it fails at |
| `before_batch.py` | what the driver does before a batch |
| `local.py` | the same for `penstock verify`, which has no batches |
"""

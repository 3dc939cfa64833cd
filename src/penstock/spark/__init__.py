"""The pipeline on Spark: the driver process plans ranges of the log, and tasks turn them into payloads staged with
delivery.

The only package that imports pyspark.

| file | what it does |
|---|---|
| `job.py` | what the planner and the tasks of one run must know |
| `log_follower.py`, `plan.py` | follow the log frame by frame; choose batches, and split each into ranges |
| `source.py` | Spark's data source: plans batches with `plan.py`, and runs a task for each range |
| `payload_split.py`, `task.py` | split decoded rows into payloads; decode, encode and stage one range |
| `range_manifest.py` | the row that a task yields for its range |
| `query.py` | one changefeed's streaming query: begins runs, publishes batches, begins again after errors |
| `failure.py` | errors on their way through Spark |
| `process.py`, `session.py`, `java.py` | the driver process, its Spark session, and the Java that it runs on |
| `tables/` | `format("penstock")` for users' own queries; nothing else here needs it |
| `daemon.py` | the process that Spark's Python workers are forked from |
"""

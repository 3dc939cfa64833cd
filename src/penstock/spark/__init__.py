"""The pipeline on Spark: the driver process plans ranges of the log, and tasks turn them into payloads staged with
delivery.

The only package that imports pyspark.

| file | what it does |
|---|---|
| `job.py` | what the planner and the tasks of one run must know |
| `log_follower.py`, `plan.py` | follow the log frame by frame; choose batches, and split each into ranges |
| `payload_split.py`, `task.py` | split decoded rows into payloads; decode, encode and stage one range |
| `range_manifest.py` | what a task returns for its range |
| `batches.py` | the batches in flight, each of them one Spark job |
| `runs.py` | one changefeed's runs: begins them, publishes batches, begins again after errors |
| `failure.py` | errors on their way through Spark |
| `process.py`, `jvm/` | the driver process; its Spark: Java, context, jobs |
| `tables/` | `format("penstock")` for users' own queries; nothing else here needs it |
| `daemon.py` | the process that Spark's Python workers are forked from (begun before Spark asks: `jvm/workers_ahead.py`) |
"""

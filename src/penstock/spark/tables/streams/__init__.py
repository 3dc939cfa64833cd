"""Streams of `format("penstock")`.

| file | what it does |
|---|---|
| `evolution.py` | which later columns end a stream, and what it says then |
| `log_stream.py` | a stream of a log, in bounded batches, and its cursor |
| `sink_stream.py` | a stream of a sink's files, each once |
| `opening.py` | either, as Spark asks for it: offsets as JSON, batches as pieces |
"""

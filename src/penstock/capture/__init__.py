"""The capture process: from a source into the log, whose only writer it is.

| module | job |
|---|---|
| `process.py` | `python -m penstock.capture` |
| `log_config.py`, `state_config.py` | the `log:` and `state:` parts of the configuration: capture opens both, so it owns these settings |
| `loop.py` | reads the source, appends, retries |
| `transactions.py`, `cut_kernel.py` | cut the event stream into transactions, and pack these into entries |
| `schemas.py` | the schema that each table has where capture reads now |
| `position.py` | which source position a frame may carry |
| `recorder.py` | appends frames, and follows which are durable |
"""

"""The capture process: from a source into the log, whose only writer it is.

| module | job |
|---|---|
| `process.py` | `python -m penstock.capture` |
| `log_config.py`, `state_config.py` | the `log:` and `state:` parts of the configuration: capture opens both, so it owns these settings |
| `loop.py` | reads the source, appends, retries |
| `transactions/` | cuts the event stream into transactions, and packs these into entries |
| `held.py` | XA groups that are prepared: their entries, and the pin that keeps them |
| `schemas.py` | the schema that each table has where capture reads now |
| `position.py` | which source position a frame may carry |
| `recorder.py` | appends frames, and follows which are durable |
"""

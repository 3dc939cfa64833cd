"""Commands that look at the way to the sinks: `table.py` is behind `penstock status --table` and `--metrics`, `spool.py`
behind `penstock spool`."""

"""What an operator asks about the way to the sinks: one table in the running delivery process (`table.py`), and the spool's
segments on disk (`spool.py`). Both only look."""

"""What an operator sees of a running Penstock: metrics (`metrics.py`), log lines (`logging.py`), health (`health.py`)."""

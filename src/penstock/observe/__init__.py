"""What an operator sees of a running Penstock: metrics (`metrics.py`) and log lines (`logging.py`)."""

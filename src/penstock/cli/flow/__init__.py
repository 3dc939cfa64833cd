"""Questions to a running flow, and what can be asked of it: lag, errors, dispatchers, pause, resume."""

"""A flow before it runs and while it does: plan, lag, tail, errors, dispatchers, pause, resume, backfill."""

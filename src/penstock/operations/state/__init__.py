"""What `penstock state` does: looks into the state of a log, for people and scripts.

Writing a checkpoint takes ownership of the log while it lasts. Everything else only looks: it takes no lock and works
while another process owns the log.

| file | commands |
|---|---|
| `looking.py` | ls, get, dump; finds and opens the state that is meant |
| `checkpoints.py` | checkpoint, verify |
"""

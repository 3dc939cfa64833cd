"""What `penstock log` does: operations on a log's directory, for people and scripts.

`changing.py` becomes the log's owner while it works. Everything else only looks: it takes no lock and works while
another process owns the log.

| file | commands |
|---|---|
| `locate.py` | shared by all: find and open the log that is meant |
| `listing.py` | ls, cursors |
| `reading.py` | read, tail, inspect |
| `changing.py` | create, append, trim, offload, skip |
| `verify.py` | verify |
"""

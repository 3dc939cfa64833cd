"""What `penstock state` does: looks into the state of a log, for people and scripts.

`checkpoint.py` becomes the log's owner while it works. Everything else only looks: it takes no lock and works while
another process owns the log.

| file | commands |
|---|---|
| `opening.py` | shared by all: find and open the state that is meant |
| `summary.py` | ls |
| `pairs.py` | get, dump |
| `checkpoint.py` | checkpoint |
| `verify.py` | verify |
"""

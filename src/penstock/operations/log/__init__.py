"""What `penstock log` does: operations on a log's directory, for people and scripts.

`writing.py`, `trim.py` and `offload.py` become the log's owner while they work. Everything else only looks: it takes no
lock and works while another process owns the log.

| file | commands |
|---|---|
| `locate.py` | shared by all: find and open the log that is meant |
| `writing.py` | create, append |
| `reading.py` | read, tail |
| `ledgers.py`, `frames.py`, `cursors.py` | ls, inspect, cursors |
| `verify.py` | verify |
| `trim.py`, `offload.py` | trim, offload |
"""

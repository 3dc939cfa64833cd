"""What the processes of a random program do with a log, through its public interface.

| file | what |
|---|---|
| `appends.py` | entries come, one by one and in batches, through one handle or several |
| `acks.py` | cursors ack, move and are set back |
| `keeping.py` | ledgers roll, are trimmed, offloaded and truncated; the log is cleared |
| `cursors.py` | a cursor is deleted and made again under its name |
| `others.py` | another process reads all the time; another one becomes the owner, and the old owner goes on |
"""

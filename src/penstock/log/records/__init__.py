"""The record log: small facts of one owner, such as a cursor's acks, durable and compacted
(docs/formats/record-log.md).

| file | job |
|---|---|
| `workers.py` | the few threads that all record logs of a process share |
| `group_commit.py` | the records that wait, committed in groups on those threads |
| `idle_file.py` | a file that gives its descriptor back while it is not used |
| `generations.py` | the files of a record log: which is in force, who may make the next |
| `opening.py` | becoming the owner |
| `record_log.py` | the owner's handle |
| `reading.py` | reading the records without owning them |
"""

"""The delivery process: staged payloads become files at the sink, in order, each exactly once.

| file | what it does |
|---|---|
| `settings.py` | a sink's settings as a user writes them, and the document that the process reads |
| `payload.py` | what tasks stage; the identity of a dispatcher |
| `keeper_client.py` | what delivery asks of the keeper, over `control.sock` |
| `staging.py`, `spool/` | payloads that no publish has named yet; everything that is not at the sink yet, in memory and on disk |
| `sink.py` | what delivery asks of a sink of any kind |
| `storage/` | files in storage as a sink: layout, commit order, owner of the prefix |
| `dispatcher.py`, `barrier.py`, `writer.py` | one dispatcher's growing batch; a DDL and the tables that it concerns; the writer threads |
| `publishing.py` | what a publish brings, looked at before anything is changed |
| `replays/` | dispatchers that are left out of a run, and their way back beside it |
| `changefeed_delivery.py` | all of this for one changefeed: runs, staging, publishing, flushing |
| `server.py`, `process.py` | every changefeed behind `delivery.sock`; the process around the server |
"""

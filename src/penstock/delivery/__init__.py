"""The delivery process: staged payloads become files at the sink, in order, each exactly once.

| file | what it does |
|---|---|
| `settings.py` | a sink's settings as a user writes them, and the document that the process reads |
| `payload.py` | what tasks stage; the identity of a dispatcher |
| `keeper_client.py` | what delivery asks of the keeper, over `control.sock` |
| `staging.py`, `spool.py` | payloads that no publish has named yet; published payloads that are not at the sink yet |
| `storage/` | files at the sink: layout, commit order, owner of the prefix |
| `dispatcher.py`, `target.py`, `writer.py` | one dispatcher's growing batch; the sink as writers see it; the writer threads |
| `changefeed_delivery.py` | all of this for one changefeed: runs, staging, publishing, flushing |
| `server.py`, `process.py` | every changefeed behind `delivery.sock`; the process around the server |
"""

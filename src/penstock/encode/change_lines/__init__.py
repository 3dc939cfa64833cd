"""The lines of `penstock binlog decode` (docs/formats/decode-jsonl.md).

| module | job |
|---|---|
| `values.py` | a column → the text of its values |
| `origins.py` | transactions → the text of position, GTID and timestamp |
| `kernels.py` | the inner loops |
| `encoder.py` | decoded rows → lines |
| `interleave.py` | lines of several tables → lines in the order of the log |
"""

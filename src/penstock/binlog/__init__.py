"""The binlog format of MySQL and MariaDB, from bytes to columns. No I/O.

| module | job |
|---|---|
| `types.py`, `errors.py` | the format's numbers; what can be wrong with bytes |
| `events.py` | headers of many events at once, and their CRC32; the table maps in force after them |
| `bodies.py`, `tagged_gtid.py` | events that say where a transaction begins and ends |
| `charset.py`, `charset_tables.py` | character sets |
| `expand.py` | compressed events → plain ones |
| `table_map.py` | the layout of the rows that follow |
| `rows/` | row events → Arrow columns |
| `json/` | binary JSON → text |
| `dump.py` | a file as JSON, for `penstock binlog` |
| `warm.py` | compiles all kernels once |
"""

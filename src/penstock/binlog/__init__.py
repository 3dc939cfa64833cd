"""The binlog format of MySQL and MariaDB, from bytes to columns. No I/O.

| module | job |
|---|---|
| `types.py`, `errors.py` | the format's numbers; what can be wrong with bytes |
| `events.py` | headers of many events at once, and their CRC32; the table maps in force after them |
| `bodies.py`, `charset.py` | events that say where a transaction begins and ends; character sets |
| `table_map.py` | the layout of the rows that follow |
| `rows.py`, `columns.py`, `kernels.py`, `text_kernels.py`, `json_binary.py` | row events → Arrow columns |
| `dump.py` | a file as JSON, for `penstock binlog` |
| `warm.py` | compiles all kernels once |
"""

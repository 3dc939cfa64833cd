"""A live MariaDB server as a source (MySQL is not in this version yet).

| module | job |
|---|---|
| `protection.py` | who the server is, and what it may ask for |
| `connection.py` | connects, and translates the driver's errors |
| `checks.py` | which settings and grants the server must have |
| `packets.py` | replication packets → events |
| `source.py` | the `Source`: where to start, and the stream from there |
"""

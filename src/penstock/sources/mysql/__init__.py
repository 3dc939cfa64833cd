"""A live MariaDB or MySQL server as a source.

| module | job |
|---|---|
| `protection.py` | who the server is, and what it may ask for |
| `connection.py` | connects, and translates the driver's errors |
| `checks.py` | which settings and grants the server must have |
| `family.py`, `mariadb.py`, `mysql.py` | what the two families do in different ways |
| `replica.py` | our server id, and how we register |
| `dump.py` | how events are asked for |
| `packets.py` | replication packets → events |
| `source.py` | the `Source`: where to start, and the stream from there |
"""

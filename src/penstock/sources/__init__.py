"""Where binlog bytes come from.

| module | job |
|---|---|
| `source.py` | the `Source` protocol: what capture asks of every source |
| `settings.py` | the `source:` part of the configuration |
| `position.py` | where to read on in a source |
| `mysql/` | a live MariaDB server |
| `binlog_files.py` | binlog files on disk |
| `demo/` | a small shop whose binlog is a function of a seed |
"""

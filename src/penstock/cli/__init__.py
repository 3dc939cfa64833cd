"""The `penstock` command. Each command is a small file that calls `operations/` and prints the result.

| file | what it does |
|---|---|
| `main.py` | the command line as a whole, with its groups |
| `init.py`, `check.py`, `run.py`, `status.py`, `verify.py`, `demo.py` | one command each |
| `binlog.py`, `log/`, `state/` | groups of commands that look inside |
| `options.py`, `screen.py`, `output.py` | what commands share: options; lines and tables in which names are escaped; results, errors and exit codes |
"""

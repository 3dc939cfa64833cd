"""The `penstock` command. Each command is a small file that calls `operations/` and prints the result.

| file | what it does |
|---|---|
| `main.py` | the command line as a whole |
| `init.py`, `check.py`, `run.py`, `status.py`, `verify.py`, `demo.py` | one command each |
| `binlog.py`, `log/`, `state/` | groups of commands that look inside |
| `options.py`, `output.py`, `formatting.py`, `run_screen.py` | what commands share: options; results, errors and exit codes; figures and tables; the live line of a run |
"""

"""What the commands do, without a terminal: every command of `cli/` calls an operation here.

| file | what it does |
|---|---|
| `config/` | penstock.yaml: the model, loading, and what is made from it |
| `status.py` | how the flow is doing, and how far each changefeed has durably come |
| `verify/` | `penstock verify`: every change at the sinks, once and right |
| `demo.py` | `penstock demo` |
| `binlog/`, `log/`, `state/` | `penstock binlog`, `penstock log` and `penstock state` |
"""

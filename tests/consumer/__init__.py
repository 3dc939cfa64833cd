"""A consumer of TiCDC's storage protocol, written from the facts about the protocol alone: it imports nothing of Penstock.

It reads layout, index, schema and metadata files of a sink and rebuilds its tables. Whatever the real consumer needs, it
insists on; what the real one skips in silence is an error here. Each error is a `Violation` that names the requirement.

| module | job |
|---|---|
| `violation.py` | the requirements by name, `Violation` |
| `layout.py` | which file is what: data directories, indexes, schema files |
| `schemas.py` | schema files: checksum, versions, DDL |
| `statements.py` | the statements of schema files, run on the tables |
| `canal_json.py`, `csv.py`, `parquet.py` | the rows of a file |
| `consumer.py` | everything in order: `read_sink` |
"""

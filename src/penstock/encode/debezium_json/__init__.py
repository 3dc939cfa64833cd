"""Debezium's JSON (docs/formats/debezium-json.md): `encoder.py` makes lines, `values.py` the values, `schema.py` their
schemas."""

"""Parquet (docs/formats/parquet.md): `encoder.py` makes payloads and files, `columns.py` the types and values."""

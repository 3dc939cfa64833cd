"""Parquet (docs/formats/parquet.md): `encoder.py` makes payloads and files, `columns.py` each column's type and values."""

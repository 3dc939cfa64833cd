"""CSV as TiCDC's storage consumer reads it (docs/formats/csv.md): `encoder.py` makes lines, `values.py` the fields."""

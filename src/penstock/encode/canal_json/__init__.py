"""canal-json (docs/formats/canal-json.md): `encoder.py` makes the lines, `kernels.py` has its inner loops."""

"""MySQL's binary JSON: `kernel.py` prints most documents as text, `binary.py` the others, `diff.py` applies partial updates."""

"""Frames: an entry and its state changes under one checksum (docs/formats/frame.md), and the files that hold them.

| file | |
|---|---|
| `format.py` | a frame in bytes: encode, decode, verify |
| `file_header.py` | the head of a file of frames |
| `index.py` | where the frames of a file are, and when they were written |
| `writer.py` | adds frames to the end of a file |
| `check.py`, `kernels.py` | verify a chunk of frames; the compiled loops |
| `reader.py` | reads frames; finds the end of a file after a crash |
| `walk.py` | goes over damaged files too, for reports |
| `end_file.py` | how much of a log is durable, and who owns it |
"""

"""The one seam to the file system: every durable file of Penstock goes through it.

| file | what |
|---|---|
| `seam.py` | the protocols `Files` and `File`, and functions that work over any implementation |
| `real.py` | the machine's own file system |
| `direct.py` | large files past the system's cache |
| `private.py` | directories and files of this user alone: made, checked before use, removed |
| `memory.py` | a file system in memory for tests, with power cuts and failing operations |
| `unsynced.py` | what `memory.py` has not synced yet, and what a power cut may leave of it |
"""

from penstock.files.real import REAL_FILES, RealFile, RealFiles
from penstock.files.seam import (
    Buffer,
    File,
    Files,
    read_file,
    replace_file,
    typed_errors,
    write_again,
)

__all__ = [
    "REAL_FILES",
    "Buffer",
    "File",
    "Files",
    "RealFile",
    "RealFiles",
    "read_file",
    "replace_file",
    "typed_errors",
    "write_again",
]

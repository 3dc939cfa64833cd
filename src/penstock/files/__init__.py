"""The one seam to the file system: what the rest of Penstock may do with files, on a real disk or in memory with faults."""

from penstock.files.real import (
    REAL_FILES,
    Buffer,
    File,
    Files,
    Mapped,
    RealFile,
    RealFiles,
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
    "Mapped",
    "RealFile",
    "RealFiles",
    "read_file",
    "replace_file",
    "typed_errors",
    "write_again",
]

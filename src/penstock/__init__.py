"""Penstock copies every change of a MariaDB server into files, in order and without loss."""

__version__ = "0.1.0"

"""Penstock copies every change of a MariaDB or MySQL server into files, in order and without loss."""

__version__ = "0.1.0"

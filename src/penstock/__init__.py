"""Penstock copies every change of a MySQL or MariaDB server into storage, in order and without loss."""

__version__ = "0.1.0"

"""Crash tests of bucket state. See tests/crash/__init__.py."""

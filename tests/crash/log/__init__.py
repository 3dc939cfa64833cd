"""Crash tests of the log. See tests/crash/__init__.py."""

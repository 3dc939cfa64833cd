"""Tests of the test: mistakes planted one at a time into the log, each of which the log's explorer must catch."""

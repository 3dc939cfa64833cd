"""Measurements beside a peer (another program that does the same work). `make bench` runs them; each group is a module
with `measure() -> Iterator[Result]`."""

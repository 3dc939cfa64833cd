"""Measurements beside a peer. `make bench` runs them; each group is a module with `measure() -> Iterator[Result]`."""

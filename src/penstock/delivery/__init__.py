"""Delivery: staged payloads become files at the sink, in order, once (the delivery process of ARCHITECTURE.md)."""

"""Files at the sink: where they lie, the order in which they become visible, and who owns the prefix."""

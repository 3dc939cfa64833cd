"""Owners of a changefeed's durable facts, and the supervisor of one `penstock run`."""

"""The `penstock` command: thin. Each command is a small file that asks `control/` and prints."""

"""Tools for developing Penstock. Penstock itself imports nothing from here."""

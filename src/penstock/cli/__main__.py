"""`python -m penstock.cli` is the same as `penstock`."""

from penstock.__main__ import main

main()

"""`penstock`, and `python -m penstock`, which is the same."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Imports the command line only here: that takes most of a second, and Ctrl-C may come in it."""
    try:
        gc.disable()  # what imports make stays: nobody looks for garbage among it
        from penstock.cli.main import main as command_line

        gc.freeze()
        gc.enable()
        command_line()
    except KeyboardInterrupt:
        sys.exit(130)  # `penstock.process.EXIT_INTERRUPTED`, which may not be imported yet


if __name__ == "__main__":
    main()

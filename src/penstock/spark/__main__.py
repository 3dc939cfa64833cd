"""`python -m penstock.spark`: see process.py."""

import sys

from penstock.spark.process import main

if __name__ == "__main__":
    sys.exit(main())

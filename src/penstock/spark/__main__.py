"""`python -m penstock.spark`: see process.py."""

import sys

if __name__ == "__main__":
    from penstock.process import end_with_parent

    end_with_parent()

    from penstock.spark.process import main

    sys.exit(main())

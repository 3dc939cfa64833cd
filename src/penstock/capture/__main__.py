"""Runs the capture process: see process.py."""

import sys

from penstock.process import end_with_parent, importing

end_with_parent()

with importing():
    from penstock.capture.process import main

sys.exit(main())

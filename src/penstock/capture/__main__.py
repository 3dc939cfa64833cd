"""Runs the capture process: see process.py."""

import sys

from penstock.process import end_with_parent

end_with_parent()

from penstock.capture.process import main  # noqa: E402  (slow)

sys.exit(main())

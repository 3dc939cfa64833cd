"""Runs the capture process: see process.py."""

import sys

from penstock.capture.process import main

sys.exit(main())

"""Starts the delivery process; see `penstock.sink.process`."""

from penstock.sink.process import main

raise SystemExit(main())

"""Starts the delivery process; see `penstock.delivery.process`."""

from penstock.delivery.process import main

raise SystemExit(main())

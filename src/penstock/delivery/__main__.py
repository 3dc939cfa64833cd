"""Starts the delivery process; see `penstock.delivery.process`."""

from penstock.process import end_with_parent, importing

end_with_parent()

with importing():
    from penstock.delivery.process import main

raise SystemExit(main())

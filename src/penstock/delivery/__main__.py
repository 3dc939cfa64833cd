"""Starts the delivery process; see `penstock.delivery.process`."""

from penstock.process import end_with_parent

end_with_parent()

from penstock.delivery.process import main  # noqa: E402  (slow)

raise SystemExit(main())

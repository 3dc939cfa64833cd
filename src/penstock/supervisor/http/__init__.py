"""What a run says over HTTP: `/metrics`, `/healthz`, `/readyz`."""

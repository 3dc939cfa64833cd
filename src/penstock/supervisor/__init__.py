"""The supervisor of one `penstock run`: starts its three child processes, starts them again when they die, stops them
in order.

| file | what |
|---|---|
| `supervisor.py` | the run itself: one thread that decides |
| `settings.py` | what a run needs to know |
| `stopping.py` | the request to stop, and the signals that make it |
| `child.py` | a running child: the parent's side of the protocol in `penstock.process` |
| `restarts.py` | a child's slot in the run: which process fills it, and when the next one is started |
| `control_server.py` | `control.sock`: what delivery, the driver and commands ask of the run |
| `delivery_client.py` | what the run asks of delivery |
| `http_server.py`, `exposition.py` | `/metrics`, `/healthz`, `/readyz`; the status as text for Prometheus |
| `source_health.py` | whether the source is well |
| `status.py`, `reporter.py` | what a run says about itself, and how that is put together |
"""

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
| `http/` | `/metrics`, `/healthz`, `/readyz`; status and figures of all processes as text for Prometheus |
| `feeds/` | the run's changefeeds, which come and go |
| `requests.py` | what is asked of a child, and its answers |
| `health/` | whether the source is well, how long it keeps what is needed, how fast things grow |
| `status.py`, `reporter.py` | what a run says about itself, and how that is put together |
"""

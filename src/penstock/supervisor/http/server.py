"""`/metrics`, `/healthz` and `/readyz` of a run over HTTP, for those who watch it: figures and states, never a row, a name of
a table's column, or a setting (docs/security.md).

| path | 200 | 503 |
|---|---|---|
| `/healthz` | the run answers, and nothing of it has failed for good | it is about to end |
| `/readyz` | every process is up and the source is well: exit code 0 of `penstock status` | degraded, starting, or ending |
| `/metrics` | text for Prometheus: of the run, of every changefeed, and of each process | – |

A handful of threads serve it; who comes when all are busy waits in the system's queue. A request has a few seconds.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from socketserver import TCPServer
from typing import Any

from penstock import __version__
from penstock.errors import BadInput, PenstockError
from penstock.supervisor.http.exposition import run_metrics
from penstock.supervisor.status import RunStatus, is_well

THREADS = 4
REQUEST_SECONDS_MAX = 5.0
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def parse_listen(text: str) -> tuple[str, int]:
    """`127.0.0.1:8400` or `[::1]:8400`. Raises `BadInput`; names are refused, because they may come to mean another address."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        ip_address(host)
        number = int(port)
    except ValueError:
        number = -1
    if not colon or not 0 <= number <= 65535:
        raise BadInput(f"{text!r} is no address to listen on", hint="write an IP address and a port: 127.0.0.1:8400")
    return host, number


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach the address."""
    return ip_address(host).is_loopback


class HttpServer:
    """Serves from construction until `close`. `status` gives the newest status, `process_metrics` the text of the processes."""

    def __init__(self, listen: str, status: Callable[[], RunStatus], process_metrics: Callable[[], str]) -> None:
        host, port = parse_listen(listen)
        self._status = status
        self._process_metrics = process_metrics
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # HTTPServer's own way to bind asks the resolver for our name, which may take as long as that likes.
        bind = TCPServer.server_bind
        listener = type(
            "Listener", (HTTPServer,), {"address_family": family, "request_queue_size": 16, "server_bind": bind}
        )
        try:
            self._server: HTTPServer = listener((host, port), self._handler())
        except OSError as error:
            raise BadInput(
                f"http.listen: {listen} cannot be listened on: {error.strerror or error}", hint="give another port"
            ) from error
        self._server.timeout = None
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._serve, name=f"http-{n}", daemon=True) for n in range(THREADS)]
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; the port that the system chose where 0 was asked for."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the threads that wait for a connection
        self._server.server_close()
        for thread in self._threads:
            thread.join(REQUEST_SECONDS_MAX)

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                request, address = self._server.get_request()
            except OSError:
                if self._closing.wait(0.05):
                    return
                continue
            with contextlib.suppress(OSError):
                self._server.finish_request(request, address)
            with contextlib.suppress(OSError):
                self._server.shutdown_request(request)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            server_version = f"penstock/{__version__}"
            sys_version = ""
            timeout = REQUEST_SECONDS_MAX

            def handle(self) -> None:
                """`timeout` is of one read: who sends a byte now and then must not have a thread for ever."""
                self._over = threading.Timer(REQUEST_SECONDS_MAX, self._end)
                self._over.daemon = True
                self._over.start()
                try:
                    super().handle()
                finally:
                    self._over.cancel()

            def _end(self) -> None:
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)

            def do_GET(self) -> None:
                self._over.cancel()  # the request is there; how long the answer takes is up to us
                code, kind, text = owner.answer(self.path.partition("?")[0])
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: whoever watches asks every few seconds."""

        return Handler

    def answer(self, path: str) -> tuple[int, str, str]:
        """Status code, content type and body for a path."""
        if path == "/metrics":
            return HTTPStatus.OK, _PROMETHEUS, self._metrics()
        if path not in ("/healthz", "/readyz"):
            text = "there are /metrics, /healthz and /readyz\n"
            return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", text
        status = self._status()
        good = status.phase in ("starting", "running") and not any(c.state == "failed" for c in status.children)
        if path == "/readyz":
            good = (
                good
                and status.phase == "running"
                and is_well(status)
                and all(child.state == "running" for child in status.children)
            )
        code = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        document = {"ok": good, "phase": status.phase, "lag_seconds": round(status.lag_seconds, 3)}
        return code, "application/json", json.dumps(document) + "\n"

    def _metrics(self) -> str:
        text = run_metrics(self._status())
        with contextlib.suppress(PenstockError):  # it is starting or gone, which the metrics of the run show
            text += self._process_metrics()
        return text

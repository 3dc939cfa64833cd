"""An HTTP proxy in front of an S3 server: it sees every request, and answers them as a bad network or a bad server would."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from tests.support.waiting import LIMIT_SECONDS

_OF_ONE_CONNECTION = {"connection", "transfer-encoding", "keep-alive"}


class Fault(Enum):
    FAIL = "fail"  # 500, and nothing was done
    DROP = "drop"  # the connection ends, and nothing was done
    LOSE = "lose"  # it was done, and the connection ends without a reply
    LATE = "late"  # the connection ends; it is done `late_seconds` later, when nobody waits for it
    HOLD = "hold"  # nothing comes back until `release`; then as if nothing had been


@dataclass(slots=True)
class Exchange:
    """A request, and from `on_done` on its status. `name` is the object's, without the bucket."""

    method: str
    name: str
    query: str
    headers: dict[str, str]
    body: bytes
    status: int = 0

    @property
    def stored(self) -> bool:
        """Whether an object has new bytes now."""
        return self.method == "PUT" and not self.query and self.status == 200


class S3Proxy:
    """`plan` says what happens to a request (None: nothing bad); `on_done` sees it after the server and before its client.

    Both may be called by several threads at once.
    """

    late_seconds = 0.3

    def __init__(self, endpoint: str) -> None:
        self.plan: Callable[[Exchange], Fault | None] = lambda _exchange: None
        self.on_done: Callable[[Exchange], None] = lambda _exchange: None
        self._target = urlsplit(endpoint)
        self._released = threading.Event()
        self._late: list[threading.Thread] = []
        proxy = self

        class Handler(_Handler):
            owner = proxy

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, _request: object, _address: object) -> None:
                """A client that was killed is nothing to talk about."""

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator[S3Proxy]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.release()
            self._server.shutdown()
            self._server.server_close()
            thread.join(LIMIT_SECONDS)
            self.wait_for_late_ones()

    def release(self) -> None:
        """What is held goes on, and nothing is held any more."""
        self._released.set()

    def wait_for_late_ones(self) -> None:
        for each in list(self._late):
            each.join(LIMIT_SECONDS)

    def upstream(self) -> http.client.HTTPConnection:
        assert self._target.hostname is not None
        return http.client.HTTPConnection(self._target.hostname, self._target.port, timeout=LIMIT_SECONDS)

    def do_late(self, exchange: Exchange, target: str) -> None:
        def work() -> None:
            time.sleep(self.late_seconds)
            with contextlib.closing(self.upstream()) as connection:
                exchange.status, _headers, _body = ask(connection, exchange, target)
            self.on_done(exchange)

        thread = threading.Thread(target=work, daemon=True)
        self._late.append(thread)
        thread.start()

    def hold(self) -> None:
        self._released.wait(LIMIT_SECONDS)


def ask(
    connection: http.client.HTTPConnection, exchange: Exchange, target: str
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Passes the request on as it is: its signature covers host and headers."""
    connection.putrequest(exchange.method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in exchange.headers.items():
        connection.putheader(name, value)
    connection.endheaders(exchange.body or None)
    answer = connection.getresponse()
    return answer.status, answer.getheaders(), answer.read()


class _Handler(BaseHTTPRequestHandler):
    owner: S3Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._upstream = self.owner.upstream()

    def finish(self) -> None:
        self._upstream.close()
        with contextlib.suppress(OSError):
            super().finish()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        name = unquote(parts.path).lstrip("/").partition("/")[2]
        exchange = Exchange(self.command, name, parts.query, dict(self.headers.items()), body)
        fault = self.owner.plan(exchange)
        if fault is Fault.HOLD:
            self.owner.hold()
        elif fault is Fault.FAIL:
            self._answer(500, [], b"<Error><Code>InternalError</Code></Error>")
            return
        elif fault is Fault.LATE:
            self.owner.do_late(exchange, self.path)
        if fault in (Fault.DROP, Fault.LATE):
            self._hang_up()
            return
        exchange.status, headers, answer = ask(self._upstream, exchange, self.path)
        self.owner.on_done(exchange)
        if fault is Fault.LOSE:
            self._hang_up()
            return
        self._answer(exchange.status, headers, answer)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve  # noqa: N815 - the base class wants them so

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            known = name.lower() == "content-length" and self.command != "HEAD"
            if name.lower() not in _OF_ONE_CONNECTION and not known:
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_arguments: object) -> None:
        """Tests look at `on_done`."""

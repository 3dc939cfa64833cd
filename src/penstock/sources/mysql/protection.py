"""Who the server is, and what it may ask for, before anything secret is sent to it.

A server that is reached over a network proves its identity by TLS, unless the configuration says otherwise (`Tls.mode`).
The server's greeting comes before TLS and can be forged: one that offers no TLS, where TLS is wanted, gets nothing at all.
And some ways to log in give the server the password itself, or let it be found from what is sent: they are only used with
a server whose identity was verified.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pymysql.connections import Connection
from pymysql.constants import CLIENT

from penstock.files.private import check_not_planted
from penstock.sources.settings import ServerSettings, Tls
from penstock.sources.source import SourceError

_GIVES_PASSWORD = ("mysql_clear_password", "dialog")  # dialog: PAM
# Over plain text with a key that the server sends, which anybody could have made: also another user of this machine who
# took the port while the server was down. A Unix socket is in a directory of the server's own.
_GIVES_PASSWORD_TO_KEY = ("sha256_password", "caching_sha2_password")
_NEVER = ("mysql_old_password",)
_HINT = (
    "tls: {ca: …} verifies the server (for the certificate that MySQL makes for itself: tls: {mode: verify-ca, ca: ca.pem of "
    "its data directory}); on the same machine, unix_socket: does too"
)

if TYPE_CHECKING:
    _Base = Connection[Any]
else:
    _Base = Connection  # generic for mypy alone


class CarefulConnection(_Base):
    """A connection that looks at the server's greeting before it answers."""

    tls_wanted = False
    tls_verified = False
    by_socket = False

    def _create_ssl_ctx(self, wanted: Any) -> ssl.SSLContext:
        """PyMySQL asks for one as soon as it is made, also for a server that offers no TLS: with the certificates of every
        authority, which takes 20 ms, and which nothing is compared with where nothing is verified."""
        if wanted:
            context: ssl.SSLContext = super()._create_ssl_ctx(wanted)  # type: ignore[misc]
            return context
        return _unverified()

    def _get_server_information(self) -> None:
        super()._get_server_information()  # type: ignore[misc]
        private: Any = self
        if self.tls_wanted and not private.server_capabilities & CLIENT.SSL:
            raise SourceError(
                "the server offers no TLS; nothing was sent to it",
                hint="turn TLS on in the server; tls: {mode: disabled} would send everything in plain text",
            )
        is_safe = self.tls_verified or self.by_socket
        if private._auth_plugin_name == "sha256_password" and not is_safe:  # else sent with the first answer
            raise refused("sha256_password")


def login_methods(*, verified: bool, by_socket: bool) -> dict[str, Callable[[Connection[Any]], Any]]:
    """PyMySQL's `auth_plugin_map`: the ways to log in that are refused."""
    names: tuple[str, ...] = _NEVER
    if not verified:
        names += _GIVES_PASSWORD if by_socket else (*_GIVES_PASSWORD, *_GIVES_PASSWORD_TO_KEY)
    return {name: _refusal(name) for name in names}


def _refusal(name: str) -> type:
    class Refusal:
        def __init__(self, _connection: object) -> None:
            pass

        def authenticate(self, _packet: object) -> None:
            raise refused(name)

    return Refusal


def refused(name: str) -> SourceError:
    if name in _NEVER:
        return SourceError(f"the server asks for {name}, which is broken; nothing was sent", hint=_HINT)
    return SourceError(
        f"the server asks for the password itself ({name}), and its identity is not verified; it was not sent",
        hint=_HINT,
    )


def tls_arguments(settings: ServerSettings) -> dict[str, Any]:
    """What PyMySQL is told about TLS: a context, nothing (TLS where the server offers it), or never."""
    mode = settings.tls_mode
    if mode == "disabled":
        return {"ssl_disabled": True}
    return {} if mode == "preferred" else {"ssl": _context(settings.tls or Tls())}


def _context(tls: Tls) -> ssl.SSLContext:
    for path in (tls.ca, tls.cert, tls.key):
        if path is not None:
            check_not_planted(path)
    try:
        if tls.mode == "required":
            context = _unverified()
        else:
            context = ssl.create_default_context(cafile=os.fspath(tls.ca) if tls.ca else None)
        if tls.cert is not None:
            # With a password, even an empty one, OpenSSL never asks for one on the terminal.
            context.load_cert_chain(tls.cert, tls.key, tls.key_password.reveal() if tls.key_password else "")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise SourceError(
            f"source.tls: {error}", hint="check the files of ca, cert and key, and key_password"
        ) from error
    if tls.mode != "verify-identity":
        context.check_hostname = False
    return context


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

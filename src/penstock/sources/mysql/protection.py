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
from penstock.sources.settings import MariadbSettings, Tls
from penstock.sources.source import SourceError

# dialog: PAM. The sha256 ones: over plain text with a key that the server sends, which anybody could have made.
_GIVES_PASSWORD = ("mysql_clear_password", "dialog", "sha256_password", "caching_sha2_password")
_NEVER = ("mysql_old_password",)
_HINT = "tls: {ca: …} verifies the server; or give this user a password that is checked with mysql_native_password or ed25519"

if TYPE_CHECKING:
    _Base = Connection[Any]
else:
    _Base = Connection  # generic for mypy alone


class CarefulConnection(_Base):
    """A connection that looks at the server's greeting before it answers."""

    tls_wanted = False
    tls_verified = False

    def _get_server_information(self) -> None:
        super()._get_server_information()  # type: ignore[misc]
        private: Any = self
        if self.tls_wanted and not private.server_capabilities & CLIENT.SSL:
            raise SourceError(
                "the server offers no TLS; nothing was sent to it",
                hint="turn TLS on in the server; tls: {mode: disabled} would send everything in plain text",
            )
        if private._auth_plugin_name == "sha256_password" and not self.tls_verified:  # else sent with the first answer
            raise refused("sha256_password")


def login_methods(*, verified: bool) -> dict[str, Callable[[Connection[Any]], Any]]:
    """PyMySQL's `auth_plugin_map`: the ways to log in that are refused."""
    names = _NEVER if verified else (*_NEVER, *_GIVES_PASSWORD)
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


def tls_arguments(settings: MariadbSettings) -> dict[str, Any]:
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
    if tls.mode == "required":
        context.verify_mode = ssl.CERT_NONE
    return context

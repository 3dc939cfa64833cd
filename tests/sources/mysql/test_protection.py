"""Nothing secret goes to a server that is not who it should be."""

from __future__ import annotations

import builtins
import contextlib
import hashlib
import ssl
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.errors import BadInput, PenstockError, Unavailable
from penstock.sources.mysql.connection import connect, rows
from penstock.sources.settings import ServerSettings
from penstock.sources.source import SourceError
from tests.sources.mysql.certificates import PASSPHRASE, Certificates, make_certificates
from tests.sources.mysql.fake_server import FakeServer
from tools.components.mariadb import MariaDbServer

PASSWORD = "the-password-itself"
GIVE_IT = ("mysql_clear_password", "dialog", "sha256_password", "caching_sha2_password")


def settings(port: int = 3306, **values: Any) -> ServerSettings:
    base = {"type": "mariadb", "host": "127.0.0.1", "port": port, "user": "repl", "password": PASSWORD}
    return ServerSettings.model_validate({**base, **values})


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    """In a directory of their own: a second session of pytest takes the rights of others from those of the first, and the
    server that reads them may run as another user."""
    with tempfile.TemporaryDirectory(prefix="penstock-certificates-") as directory:
        yield make_certificates(Path(directory))


def server_tls(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    return context


# -- what is the default ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "mode", "verified"),
    [
        ({"host": "db.internal"}, "verify-identity", True),
        ({"host": "10.0.0.7"}, "verify-identity", True),
        ({"host": "localhost.evil.example"}, "verify-identity", True),
        ({"host": "127.0.0.1"}, "preferred", False),
        ({"host": "127.9.9.9"}, "preferred", False),
        ({"host": "::1"}, "preferred", False),
        ({"host": "LOCALHOST"}, "preferred", False),
        ({"host": "db", "unix_socket": "/run/x.sock"}, "preferred", False),
        ({"host": "db", "tls": {"ca": "x"}}, "verify-identity", True),
        ({"host": "db", "tls": {"mode": "verify-ca"}}, "verify-ca", True),
        ({"host": "db", "tls": {"mode": "required"}}, "required", False),
        ({"host": "db", "tls": {"mode": "disabled"}}, "disabled", False),
    ],
)
def test_a_server_that_is_not_local_is_verified(values: dict[str, Any], mode: str, verified: bool) -> None:
    found = settings(**values)
    assert (found.tls_mode, found.is_verified) == (mode, verified)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"host": "db", "tls": {"mode": "disabled"}}, "plain text to db"),
        ({"host": "db", "tls": {"mode": "required"}}, "db is not verified"),
        ({"host": "db"}, ""),
        ({"host": "127.0.0.1", "tls": {"mode": "disabled"}}, ""),
    ],
)
def test_what_is_exposed_is_told(values: dict[str, Any], says: str) -> None:
    told = settings(**values).exposure()
    assert says in told
    assert bool(says) == bool(told)


@pytest.mark.parametrize(
    ("tls", "says"),
    [
        ({"mode": "disabled", "ca": "x"}, "ca would not be used"),
        ({"mode": "required", "ca": "x"}, "verifies nothing"),
        ({"key": "x"}, "a key needs a cert"),
        ({"verify": False}, "Extra inputs"),
    ],
)
def test_settings_that_contradict_each_other(tls: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        settings(tls=tls)


# -- hostile servers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asks_for", [*GIVE_IT, "mysql_old_password"])
@pytest.mark.parametrize("tls", [None, {"mode": "disabled"}], ids=["local", "disabled"])
def test_a_password_is_never_given_away_in_plain_text(asks_for: str, tls: dict[str, Any] | None) -> None:
    with FakeServer(asks_for).running() as server, pytest.raises(SourceError, match=asks_for):
        connect(settings(server.port, tls=tls))
    assert len(server.got) == 1, "only the first answer, in which the password is scrambled"
    assert PASSWORD.encode() not in b"".join(server.got)


@pytest.mark.parametrize("asks_for", GIVE_IT)
@pytest.mark.parametrize("greets_with", ["mysql_native_password", "sha256_password"])
def test_nor_to_whoever_answers_with_tls(asks_for: str, greets_with: str, certificates: Certificates) -> None:
    server = FakeServer(asks_for, greets_with, tls=server_tls(certificates))
    with server.running(), pytest.raises(SourceError, match="the password itself"):
        connect(settings(server.port, tls={"mode": "required"}))
    assert PASSWORD.encode() not in b"".join(server.got)


@pytest.mark.parametrize("tls", [None, {"mode": "required"}, {"mode": "disabled"}], ids=str)
def test_no_authority_is_read_where_none_is_asked(
    tls: dict[str, Any] | None, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: pytest.fail("20 ms, at each connection"))
    server = FakeServer("mysql_old_password", tls=server_tls(certificates))
    with server.running(), pytest.raises(SourceError, match="mysql_old_password"):
        connect(settings(server.port, tls=tls))


@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_nor_where_the_greeting_names_sha2_and_the_fast_way_is_turned_down(
    mode: str, certificates: Certificates
) -> None:
    tls = server_tls(certificates) if mode == "required" else None
    server = FakeServer("", "caching_sha2_password", tls=tls, after=b"\x01\x04")
    with server.running(), pytest.raises(SourceError, match="the password itself"):
        connect(settings(server.port, tls={"mode": mode}))
    assert PASSWORD.encode() not in b"".join(server.got)
    assert b"\x02" not in server.got, "nor is a key asked for"


@pytest.mark.parametrize("mode", ["verify-identity", "verify-ca", "required"])
def test_a_server_that_takes_tls_away_gets_nothing(mode: str) -> None:
    with FakeServer("mysql_clear_password").running() as server, pytest.raises(SourceError, match="offers no TLS"):
        connect(settings(server.port, tls={"mode": mode}))
    assert server.got == []


def test_a_remote_server_without_a_word_about_tls_gets_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerSettings, "is_local", False)
    with FakeServer("mysql_clear_password").running() as server, pytest.raises(SourceError, match="offers no TLS"):
        connect(settings(server.port))
    assert server.got == []


def test_a_certificate_of_nobody_we_know(certificates: Certificates, tmp_path: Path) -> None:
    other = make_certificates(tmp_path / "other")
    for ca in (None, str(other.ca)):
        server = FakeServer("mysql_clear_password", tls=server_tls(certificates))
        tls = {"ca": ca} if ca else {}
        with server.running(), pytest.raises(SourceError, match="cannot be verified") as caught:
            connect(settings(server.port, tls=tls))
        assert "source.tls.ca" in caught.value.hint
        assert b"repl" not in b"".join(server.got)


def test_a_certificate_for_another_host(tmp_path: Path) -> None:
    other = make_certificates(tmp_path, address="10.1.2.3")
    server = FakeServer("mysql_clear_password", tls=server_tls(other))
    with server.running(), pytest.raises(SourceError, match="cannot be verified"):
        connect(settings(server.port, tls={"ca": str(other.ca)}))
    assert b"repl" not in b"".join(server.got)


def test_a_verified_server_may_ask_for_the_password(certificates: Certificates) -> None:
    server = FakeServer("mysql_clear_password", tls=server_tls(certificates))
    with server.running(), contextlib.suppress(Unavailable):
        connect(settings(server.port, tls={"ca": str(certificates.ca)}))
    assert server.got[-1] == PASSWORD.encode() + b"\0"


def test_a_local_file_is_never_sent(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("mine")
    ask = b"\xfb" + str(tmp_path / "private").encode()
    with FakeServer("", after=ask).running() as server, pytest.raises(PenstockError):
        connect(settings(server.port))
    assert b"mine" not in b"".join(server.got)


def test_ed25519_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def missing(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("nacl"):
            raise ImportError(name)
        return original(name, *arguments, **more)

    for name in [name for name in sys.modules if name.startswith("nacl")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("pymysql._auth._nacl_bindings", None)
    monkeypatch.setattr(builtins, "__import__", missing)
    with FakeServer("client_ed25519").running() as server, pytest.raises(SourceError) as caught:
        connect(settings(server.port))
    assert "pymysql[ed25519]" in caught.value.hint


def test_an_encrypted_key_never_asks_on_the_terminal(certificates: Certificates) -> None:
    tls = {"ca": str(certificates.ca), "cert": str(certificates.client), "key": str(certificates.client_key)}
    for wrong in ({}, {"key_password": "not this one"}):
        with pytest.raises(SourceError, match=r"source\.tls") as caught:
            connect(settings(1, tls={**tls, **wrong}))
        assert "not this one" not in str(caught.value)


# -- a real server ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls_server(certificates: Certificates) -> Iterator[MariaDbServer]:
    options = [
        f"--ssl-ca={certificates.ca}",
        f"--ssl-cert={certificates.server}",
        f"--ssl-key={certificates.server_key}",
    ]
    certificates.ca.parent.chmod(0o755)  # where directories above are open, the server runs as another user
    with tempfile.TemporaryDirectory(prefix="penstock-tls-", ignore_cleanup_errors=True) as directory:
        server = MariaDbServer(Path(directory) / "server", options=options)
        server.start()
        yield server
        server.stop()


@pytest.mark.mariadb
@pytest.mark.parametrize("mode", ["verify-identity", "verify-ca", "required", "preferred"])
def test_tls_with_a_real_server(mode: str, tls_server: MariaDbServer, certificates: Certificates) -> None:
    tls = {"mode": mode, "ca": str(certificates.ca)} if mode.startswith("verify") else {"mode": mode}
    given = {} if mode == "preferred" else {"tls": tls}  # it is what a local server gets without a word
    found = settings(tls_server.port, user=tls_server.user, password=tls_server.password, **given)
    with contextlib.closing(connect(found)) as connection:
        [(_, cipher)] = rows(connection, "SHOW STATUS LIKE 'Ssl_cipher'")
    assert cipher


@pytest.mark.mariadb
def test_a_certificate_of_our_own_with_a_passphrase(tls_server: MariaDbServer, certificates: Certificates) -> None:
    with tls_server.connect() as admin, admin.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE USER certified@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE X509")
    tls = {"ca": str(certificates.ca), "cert": str(certificates.client), "key": str(certificates.client_key)}
    tls["key_password"] = PASSPHRASE
    with contextlib.closing(connect(settings(tls_server.port, user="certified", tls=tls))) as connection:
        assert rows(connection, "SELECT 1") == [(1,)]
    without = {"ca": str(certificates.ca)}
    with pytest.raises(SourceError, match="denied"):
        connect(settings(tls_server.port, user="certified", tls=without))


@pytest.mark.mariadb
def test_an_unknown_authority_is_terminal(tls_server: MariaDbServer) -> None:
    with pytest.raises(SourceError, match="cannot be verified"):
        connect(settings(tls_server.port, user=tls_server.user, password=tls_server.password, tls={}))


def test_a_server_that_goes_away_is_not_a_wrong_certificate() -> None:
    with pytest.raises(Unavailable):
        connect(settings(1, tls={}))


@pytest.mark.parametrize("password", ["zwölf Bäume", "пароль"])
def test_a_password_is_sent_as_the_server_has_it(password: str) -> None:
    """MariaDB hashes a password's bytes in UTF-8, whatever letters it has."""
    with FakeServer("none_such").running() as server, pytest.raises(SourceError, match="none_such"):
        connect(settings(server.port, password=password))
    once = hashlib.sha1(password.encode()).digest()
    mask = hashlib.sha1(b"a" * 8 + b"b" * 12 + hashlib.sha1(once).digest()).digest()
    assert bytes(a ^ b for a, b in zip(once, mask, strict=True)) in server.got[0]


@pytest.mark.parametrize("what", ["password_file", "ca"])
def test_a_file_that_anybody_could_have_planted_is_not_trusted(what: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("hunter2")
    path.chmod(0o666)
    values: dict[str, Any] = (
        {"password": None, "password_file": path} if what == "password_file" else {"tls": {"ca": path}}
    )
    with FakeServer("none_such").running() as server, pytest.raises(BadInput, match="written to by everybody"):
        connect(settings(server.port, **values))
    assert server.got == []


def test_a_password_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xff\xfehunter2")
    path.chmod(0o600)
    with pytest.raises(BadInput, match=r"source\.password_file: .*/file is no text in UTF-8") as caught:
        connect(settings(1, password=None, password_file=path))
    assert "hunter2" not in str(caught.value)

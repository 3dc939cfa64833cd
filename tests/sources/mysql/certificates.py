"""Certificates of a test's own: an authority, a server for 127.0.0.1, and a client whose key has a passphrase."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PASSPHRASE = "key-passphrase-4711"


@dataclass(frozen=True)
class Certificates:
    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(directory: Path, *, address: str = "127.0.0.1") -> Certificates:
    directory.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _signed("penstock test authority", authority_key, None, authority_key, None)
    made = Certificates(*(directory / f"{name}.pem" for name in ("ca", "server", "server-key", "client", "client-key")))
    made.ca.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    for name, path, key_path, secret in (
        ("server", made.server, made.server_key, None),
        ("client", made.client, made.client_key, PASSPHRASE),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        path.write_bytes(_signed(name, key, authority, authority_key, address).public_bytes(serialization.Encoding.PEM))
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if secret is not None:
            hidden = serialization.BestAvailableEncryption(secret.encode())
        key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden))
        key_path.chmod(0o644)  # the server of the test runs as another user
    return made


def _signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    address: str | None,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if issuer is None:
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    if address is not None:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())

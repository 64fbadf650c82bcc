"""Our own application instance certificate (OPC 10000-6, 6.2.2): made once, replaced only when somebody asks for it.

Servers trust this very certificate, so one that renewed itself would lock us out. The application URI is what the
certificate says: an installation's own, which stays the same when the certificate is renewed.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from ingest.errors import SourceError

DAYS = 5 * 365  # that a new certificate is valid
_NEW = f"`plantlog certificate renew` makes a new one of {DAYS} days, which every server must trust anew"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are to a server: certificate, key, and the application URI that the certificate names."""

    certificate: x509.Certificate
    key: RSAPrivateKey
    path: Path  # of the certificate

    @property
    def uri(self) -> str:
        """The application URI."""
        return application_uris(self.certificate)[0]

    def __str__(self) -> str:
        mark, end = thumbprint(self.certificate), ends(self.certificate)
        return f"{self.path} (application URI {self.uri}, thumbprint {mark}, ends {end:%Y-%m-%d})"


def identity(pki: Path) -> Identity:
    """The one in ``pki``; made where there is none. Raises SourceError where half of it is missing or unreadable."""
    key_path, path = paths(pki)
    there = [p for p in (key_path, path) if p.exists()]
    if not there:
        with _alone(pki):
            if not path.exists():  # another process may have made one meanwhile
                return make(pki, f"urn:plantlog:{uuid.uuid4()}")
    try:
        return checked(path.read_bytes(), key_path.read_bytes(), path)
    except FileNotFoundError as error:
        raise SourceError(f"{error.filename} is missing beside {there[0]}: put it back, or {_NEW}") from error
    except OSError as error:
        raise SourceError(f"our certificate: {error}") from error


@contextmanager
def _alone(pki: Path) -> Iterator[None]:
    pki.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(pki, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make(pki: Path, uri: str, days: int = DAYS) -> Identity:
    """A new key and a new certificate. What was there before is kept in ``replaced``."""
    # asyncua takes a while to import, and most who read certificates make none.
    from asyncua.crypto.cert_gen import generate_self_signed_app_certificate  # noqa: PLC0415

    key = generate_private_key(public_exponent=65537, key_size=2048)
    names = [x509.UniformResourceIdentifier(uri), x509.DNSName(socket.gethostname())]
    usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = generate_self_signed_app_certificate(key, "plantlog", {}, names, usage, days)
    return store(pki, certificate, key)


def renewed(pki: Path, days: int = DAYS) -> Identity:
    """A new key and a new certificate for the same application URI. Raises SourceError where the old can't be read."""
    _, path = paths(pki)
    if not path.exists():
        return make(pki, f"urn:plantlog:{uuid.uuid4()}", days)
    uris = application_uris(read(path.read_bytes(), path))
    return make(pki, uris[0] if uris else f"urn:plantlog:{uuid.uuid4()}", days)


def store(pki: Path, certificate: x509.Certificate, key: RSAPrivateKey) -> Identity:
    """Put both in place, the key readable by the owner alone; what was there before goes to ``replaced``."""
    key_path, path = paths(pki)
    folder = pki / "replaced" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for old in (key_path, path):
        if old.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            old.replace(folder / old.name)
    pki.mkdir(parents=True, exist_ok=True)
    write_private(key_path, key_pem(key))
    path.write_bytes(certificate.public_bytes(Encoding.DER))
    return Identity(certificate, key, path)


def paths(pki: Path) -> tuple[Path, Path]:
    """Key (PEM) and certificate (DER)."""
    return pki / "own.pem", pki / "own.der"


def checked(certificate: bytes, key: bytes, path: Path) -> Identity:
    """Certificate and key, each DER or PEM, that go together. Raises SourceError that says what does not."""
    found = read(certificate, path)
    try:
        private = load_pem_private_key(key, None) if b"-----BEGIN" in key else load_der_private_key(key, None)
    except (ValueError, TypeError) as error:  # TypeError: it has a password
        raise SourceError(f"the key of {path} can't be read: {error}; legal: an RSA key without a password") from error
    if not isinstance(private, RSAPrivateKey) or private.public_key() != found.public_key():
        raise SourceError(f"the key of {path} is not that of the certificate: put the right one back, or {_NEW}")
    if not application_uris(found):
        raise SourceError(f"{path} names no application URI (OPC 10000-6, 6.2.2), which every server asks for: {_NEW}")
    return Identity(found, private, path)


def read(content: bytes, path: Path | str) -> x509.Certificate:
    """A certificate, DER or PEM; of a PEM chain the first. Raises SourceError."""
    try:
        if b"-----BEGIN" in content:
            return x509.load_pem_x509_certificate(content)
        return x509.load_der_x509_certificate(content)
    except ValueError as error:
        raise SourceError(f"{path} is no certificate (DER or PEM): {error}") from error


def application_uris(certificate: x509.Certificate) -> list[str]:
    """The URIs among the subject's alternative names. Raises ValueError where the extensions can't be read."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def thumbprint(certificate: x509.Certificate) -> str:
    """SHA-1, in hexadecimal digits: how OPC UA servers name a certificate (OPC 10000-6, 6.2.2)."""
    return certificate.fingerprint(hashes.SHA1()).hex()


def ends(certificate: x509.Certificate) -> datetime:
    """The last moment at which it is valid."""
    return certificate.not_valid_after_utc.astimezone(UTC)


def key_pem(key: RSAPrivateKey) -> bytes:
    """The key as it is kept (PKCS #8)."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_private(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on. Raises FileExistsError: nothing is overwritten."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
